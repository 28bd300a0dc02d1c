//! Information that clients request about a server before they send queries.

use std::sync::Arc;

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlSupportedCaseSensitivity, SqlSupportedTransaction,
    XdbcDataType,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// The one catalogue.
pub const CATALOG: &str = "asof";
/// The one schema.
pub const SCHEMA: &str = "public";
/// All tables are of this type.
pub const TABLE: &str = "TABLE";

/// The name and the capabilities of this server.
pub fn server() -> Result<SqlInfoData> {
    let mut facts = SqlInfoDataBuilder::new();
    let version = env!("CARGO_PKG_VERSION");
    facts.append(SqlInfo::FlightSqlServerName, "asof");
    facts.append(SqlInfo::FlightSqlServerVersion, version);
    facts.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    facts.append(SqlInfo::FlightSqlServerReadOnly, true);
    facts.append(SqlInfo::FlightSqlServerSql, true);
    facts.append(SqlInfo::FlightSqlServerSubstrait, false);
    let transactions = SqlSupportedTransaction::None as i32;
    facts.append(SqlInfo::FlightSqlServerTransaction, transactions);
    // A query ends with its stream; it has no name to cancel it by.
    facts.append(SqlInfo::FlightSqlServerCancel, false);
    facts.append(SqlInfo::FlightSqlServerBulkIngestion, false);
    facts.append(SqlInfo::SqlDdlCatalog, false);
    facts.append(SqlInfo::SqlDdlSchema, false);
    facts.append(SqlInfo::SqlDdlTable, false);
    // Names keep their case, quoted or not.
    let case = SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32;
    facts.append(SqlInfo::SqlIdentifierCase, case);
    facts.append(SqlInfo::SqlQuotedIdentifierCase, case);
    facts.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    facts.append(SqlInfo::SqlAllTablesAreSelectable, true);
    facts.build()
}

/// The types of columns that a client may ask for by name.
pub fn types() -> Result<XdbcTypeInfoData> {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, kind, size, is_text, unsigned) in TYPES {
        types.append(XdbcTypeInfo {
            type_name: (*name).to_owned(),
            data_type: *kind,
            sql_data_type: *kind,
            column_size: *size,
            literal_prefix: is_text.then(|| "'".to_owned()),
            literal_suffix: is_text.then(|| "'".to_owned()),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: *is_text,
            searchable: Searchable::Full,
            unsigned_attribute: *unsigned,
            auto_increment: unsigned.map(|_| false),
            ..XdbcTypeInfo::default()
        });
    }
    types.build()
}

/// Name, type, digits or characters, whether its literals are quoted, whether a number is unsigned.
type Kind = (&'static str, XdbcDataType, Option<i32>, bool, Option<bool>);

const TYPES: &[Kind] = &[
    ("BOOLEAN", XdbcDataType::XdbcBit, Some(1), false, None),
    (
        "TINYINT",
        XdbcDataType::XdbcTinyint,
        Some(3),
        false,
        Some(false),
    ),
    (
        "SMALLINT",
        XdbcDataType::XdbcSmallint,
        Some(5),
        false,
        Some(false),
    ),
    (
        "INTEGER",
        XdbcDataType::XdbcInteger,
        Some(10),
        false,
        Some(false),
    ),
    (
        "BIGINT",
        XdbcDataType::XdbcBigint,
        Some(19),
        false,
        Some(false),
    ),
    (
        "BIGINT UNSIGNED",
        XdbcDataType::XdbcBigint,
        Some(20),
        false,
        Some(true),
    ),
    ("REAL", XdbcDataType::XdbcReal, Some(7), false, Some(false)),
    (
        "DOUBLE",
        XdbcDataType::XdbcDouble,
        Some(15),
        false,
        Some(false),
    ),
    ("VARCHAR", XdbcDataType::XdbcVarchar, None, true, None),
    ("VARBINARY", XdbcDataType::XdbcVarbinary, None, false, None),
    (
        "TIMESTAMP",
        XdbcDataType::XdbcTimestamp,
        Some(30),
        true,
        None,
    ),
];

/// The columns of an answer about primary keys.
pub fn primary_keys() -> SchemaRef {
    columns(&[
        ("catalog_name", DataType::Utf8, true),
        ("db_schema_name", DataType::Utf8, true),
        ("table_name", DataType::Utf8, false),
        ("column_name", DataType::Utf8, false),
        ("key_name", DataType::Utf8, true),
        ("key_sequence", DataType::Int32, false),
    ])
}

/// The columns of an answer about keys of other tables.
pub fn foreign_keys() -> SchemaRef {
    columns(&[
        ("pk_catalog_name", DataType::Utf8, true),
        ("pk_db_schema_name", DataType::Utf8, true),
        ("pk_table_name", DataType::Utf8, false),
        ("pk_column_name", DataType::Utf8, false),
        ("fk_catalog_name", DataType::Utf8, true),
        ("fk_db_schema_name", DataType::Utf8, true),
        ("fk_table_name", DataType::Utf8, false),
        ("fk_column_name", DataType::Utf8, false),
        ("key_sequence", DataType::Int32, false),
        ("fk_key_name", DataType::Utf8, true),
        ("pk_key_name", DataType::Utf8, true),
        ("update_rule", DataType::UInt8, false),
        ("delete_rule", DataType::UInt8, false),
    ])
}

fn columns(of: &[(&str, DataType, bool)]) -> SchemaRef {
    let field = |(name, kind, is_nullable): &(&str, DataType, bool)| {
        Field::new(*name, kind.clone(), *is_nullable)
    };
    Arc::new(Schema::new(of.iter().map(field).collect::<Vec<_>>()))
}
