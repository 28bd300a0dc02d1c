//! Arrow Flight SQL, asked by Arrow's own client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Fixture, Row, database};
use arrow_flight::FlightInfo;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};
use asof_sql::arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use asof_sql::arrow::compute::concat_batches;
use asof_sql::arrow::datatypes::{DataType, Int64Type};
use asof_sql::arrow::error::ArrowError;
use asof_sql::{FlightOptions, FlightServer};
use futures_util::TryStreamExt;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

type Client = FlightSqlServiceClient<Channel>;

/// A server over a recording of a topic with a hundred messages.
struct Served {
    fixture: Fixture,
    server: FlightServer,
}

fn served(options: &FlightOptions) -> Served {
    let rows: Vec<Row> = (0..100).map(|n| (n * 10, n * 10, n)).collect();
    let fixture = database(&[("/a", &rows)], 2);
    let server = FlightServer::start(Arc::clone(&fixture.database), options).expect("listens");
    Served { fixture, server }
}

impl Served {
    async fn client(&self) -> Client {
        FlightSqlServiceClient::new(connect(self.server.address()).await.expect("connects"))
    }
}

async fn connect(address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

async fn rows_of(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, FlightError> {
    let announced = info.clone().try_decode_schema().expect("a schema");
    let mut stream = start(client, info).await?;
    let batches: Vec<RecordBatch> = (&mut stream).try_collect().await?;
    let schema = stream.schema().expect("a schema comes first");
    assert_eq!(**schema, announced, "announced and sent");
    Ok(concat_batches(schema, &batches)?)
}

async fn start(
    client: &mut Client,
    info: FlightInfo,
) -> Result<FlightRecordBatchStream, FlightError> {
    let ticket = info.endpoint[0].ticket.clone().expect("a ticket");
    client.do_get(ticket).await
}

async fn ask(client: &mut Client, sql: &str) -> Result<RecordBatch, FlightError> {
    let info = client.execute(sql.to_owned(), None).await?;
    rows_of(client, info).await
}

/// What the server said, and of which sort it was.
fn refusal(error: impl Into<FlightError>) -> (Code, String) {
    match error.into() {
        FlightError::Tonic(status) => (status.code(), status.message().to_owned()),
        FlightError::Arrow(ArrowError::IpcError(text)) => {
            // The client has only the text left of what it was told.
            let code = [
                ("InvalidArgument", Code::InvalidArgument),
                ("PermissionDenied", Code::PermissionDenied),
                ("Unauthenticated", Code::Unauthenticated),
                ("NotFound", Code::NotFound),
            ];
            let found = code.iter().find(|(name, _)| text.contains(name));
            (found.map_or(Code::Unknown, |(_, code)| *code), text)
        }
        other => (Code::Unknown, other.to_string()),
    }
}

fn numbers(batch: &RecordBatch, column: usize) -> Vec<i64> {
    let column = batch.column(column).as_primitive::<Int64Type>();
    column.values().to_vec()
}

#[test]
fn a_client_gets_the_rows_that_a_query_has_here() {
    let served = served(&FlightOptions::default());
    let queries = [
        "SELECT * FROM \"/a\" ORDER BY n",
        "SELECT n, header.stamp, log_time, recording FROM a WHERE n > 90 ORDER BY n DESC",
        "SELECT count(*) AS messages FROM a",
        "SELECT x.n, y.n AS m FROM a x ASOF JOIN a y MATCH_CONDITION (x.stamp > y.stamp) ORDER BY x.n",
        "SELECT n FROM a WHERE n < 0",
        "SELECT 1 AS one UNION ALL SELECT 1.5 ORDER BY one",
        "SELECT topic, arrow_cast(topic, 'Utf8View') AS view FROM topics ORDER BY topic",
        "SELECT table_name FROM information_schema.tables ORDER BY 1",
        "DESCRIBE a",
        "EXPLAIN SELECT n FROM a",
    ];
    let here = queries.map(|sql| served.fixture.rows(sql));
    run(async {
        let mut client = served.client().await;
        for (sql, here) in queries.iter().zip(here) {
            let found = ask(&mut client, sql).await;
            let found = found.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(found.num_rows(), here.num_rows(), "{sql}");
            for (found, here) in found.columns().iter().zip(here.columns()) {
                let here = asof_sql::arrow::compute::cast(here, found.data_type());
                assert_eq!(found, &here.expect("the same but for views"), "{sql}");
            }
        }
        let views = ask(
            &mut client,
            "SELECT arrow_cast(topic, 'Utf8View') FROM topics",
        )
        .await;
        let views = views.expect("texts");
        assert_eq!(views.column(0).data_type(), &DataType::Utf8);
    });
}

#[test]
fn a_client_finds_tables_and_their_columns() {
    let served = served(&FlightOptions::default());
    run(async {
        let mut client = served.client().await;
        let info = client.get_catalogs().await.expect("catalogues");
        let found = rows_of(&mut client, info).await.expect("catalogues");
        assert_eq!(found.column(0).as_string::<i32>().value(0), "asof");
        let request = CommandGetDbSchemas::default();
        let info = client.get_db_schemas(request).await.expect("schemas");
        let found = rows_of(&mut client, info).await.expect("schemas");
        assert_eq!(found.column(1).as_string::<i32>().value(0), "public");
        let info = client.get_table_types().await.expect("types");
        let found = rows_of(&mut client, info).await.expect("types");
        assert_eq!(found.column(0).as_string::<i32>().value(0), "TABLE");

        let request = CommandGetTables {
            include_schema: true,
            table_name_filter_pattern: Some("/_".to_owned()),
            ..CommandGetTables::default()
        };
        let info = client.get_tables(request).await.expect("tables");
        let found = rows_of(&mut client, info).await.expect("tables");
        assert_eq!(found.num_rows(), 1);
        assert_eq!(found.column(2).as_string::<i32>().value(0), "/a");
        assert!(!found.column(4).as_binary::<i32>().value(0).is_empty());
        let request = CommandGetTables::default();
        let info = client.get_tables(request).await.expect("tables");
        let found = rows_of(&mut client, info).await.expect("tables");
        let names: Vec<_> = found
            .column(2)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect();
        for table in ["/a", "a", "topics", "problems"] {
            assert!(names.contains(&table), "{table} is not in {names:?}");
        }

        let wanted = vec![SqlInfo::FlightSqlServerReadOnly];
        let info = client.get_sql_info(wanted).await.expect("facts");
        let facts = rows_of(&mut client, info).await.expect("facts");
        assert_eq!(facts.num_rows(), 1);
        let info = client
            .get_xdbc_type_info(CommandGetXdbcTypeInfo::default())
            .await;
        let types = rows_of(&mut client, info.expect("types")).await;
        assert!(types.expect("types").num_rows() > 5);
    });
}

/// Tools that draw tables ask for keys, and take a refusal for a failure.
#[test]
fn there_are_no_keys_and_that_is_an_answer() {
    let served = served(&FlightOptions::default());
    run(async {
        let mut client = served.client().await;
        let infos = [
            client
                .get_primary_keys(CommandGetPrimaryKeys::default())
                .await,
            client
                .get_exported_keys(CommandGetExportedKeys::default())
                .await,
            client
                .get_imported_keys(CommandGetImportedKeys::default())
                .await,
            client
                .get_cross_reference(CommandGetCrossReference::default())
                .await,
        ];
        for info in infos {
            let keys = rows_of(&mut client, info.expect("keys")).await;
            assert_eq!(keys.expect("an answer").num_rows(), 0);
        }
    });
}

#[test]
fn parameters_of_a_prepared_statement_have_types_and_values() {
    let served = served(&FlightOptions::default());
    run(async {
        let mut client = served.client().await;
        for sql in [
            "SELECT n FROM a WHERE n >= ? AND n < ?",
            "SELECT n FROM a WHERE n >= $1 AND n < $2",
        ] {
            let mut statement = client.prepare(sql.to_owned(), None).await.expect("planned");
            let wanted = statement.parameter_schema().expect("parameters");
            let types: Vec<_> = wanted
                .fields()
                .iter()
                .map(|field| field.data_type())
                .collect();
            assert_eq!(types, [&DataType::Int64, &DataType::Int64]);
            let columns = statement.dataset_schema().expect("columns");
            assert_eq!(columns.field(0).name(), "n");
            for (from, to) in [(3, 7), (90, 200)] {
                statement.set_parameters(pair(from, to)).expect("one row");
                let info = statement.execute().await.expect("bound");
                let found = rows_of(&mut client, info).await.expect("rows");
                let expected: Vec<i64> = (i64::from(from)..i64::from(to).min(100)).collect();
                assert_eq!(numbers(&found, 0), expected);
            }
            statement.close().await.expect("closed");
        }
    });
}

fn pair(from: i32, to: i32) -> RecordBatch {
    let column = |value| Arc::new(Int32Array::from(vec![value])) as ArrayRef;
    RecordBatch::try_from_iter([("1", column(from)), ("2", column(to))]).expect("a row")
}

#[test]
fn a_prepared_statement_says_what_is_wrong_with_its_parameters() {
    let served = served(&FlightOptions::default());
    run(async {
        let mut client = served.client().await;
        let sql = "SELECT n FROM a WHERE n = ? OR n = ?".to_owned();
        let mut statement = client.prepare(sql.clone(), None).await.expect("planned");
        // None are given.
        let info = statement.execute().await.expect("planned");
        let (_, text) = refusal(rows_of(&mut client, info).await.expect_err("none"));
        assert!(text.contains("$1"), "{text}");
        // One is missing.
        let one = Arc::new(Int32Array::from(vec![1])) as ArrayRef;
        let one = RecordBatch::try_from_iter([("1", one)]).expect("a row");
        statement.set_parameters(one).expect("one row");
        let told = match statement.execute().await {
            Ok(info) => refusal(
                rows_of(&mut client, info)
                    .await
                    .expect_err("one is missing"),
            ),
            Err(error) => refusal(error),
        };
        assert!(told.1.contains("$2"), "{told:?}");
        // A text where a number is compared.
        let text = |text| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let texts = RecordBatch::try_from_iter([("1", text("x")), ("2", text("y"))]);
        let mut statement = client.prepare(sql, None).await.expect("planned");
        statement
            .set_parameters(texts.expect("a row"))
            .expect("one row");
        let told = match statement.execute().await {
            Ok(info) => refusal(rows_of(&mut client, info).await.expect_err("not a number")),
            Err(error) => refusal(error),
        };
        assert!(told.1.contains('x'), "{told:?}");
        // A name is not a number.
        let named = client.prepare("SELECT $name".to_owned(), None).await;
        let (code, text) = refusal(named.expect_err("a name"));
        assert_eq!(code, Code::InvalidArgument, "{text}");
        assert!(text.contains("$name"), "{text}");
    });
}

#[test]
fn nothing_can_be_written_or_opened() {
    let served = served(&FlightOptions::default());
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.csv");
    let copy = format!("COPY (SELECT 1) TO '{}'", out.display());
    let external = format!(
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{}'",
        out.display()
    );
    run(async {
        let mut client = served.client().await;
        for sql in [
            copy.as_str(),
            external.as_str(),
            "CREATE TABLE x AS SELECT 1",
            "CREATE VIEW x AS SELECT 1",
            "DROP TABLE a",
            "INSERT INTO a SELECT * FROM a",
            "SET datafusion.execution.batch_size = 1",
        ] {
            let asked = ask(&mut client, sql).await.map(|_| ());
            let prepared = client.prepare(sql.to_owned(), None).await.map(|_| ());
            for error in [
                refusal(asked.expect_err(sql)),
                refusal(prepared.expect_err(sql)),
            ] {
                assert_eq!(error.0, Code::PermissionDenied, "{sql}: {error:?}");
            }
        }
        let update = client
            .execute_update("DELETE FROM a".to_owned(), None)
            .await;
        assert_eq!(
            refusal(update.expect_err("written")).0,
            Code::PermissionDenied
        );
    });
    assert!(!out.exists());
}

#[test]
fn what_is_wrong_with_a_query_is_said() {
    let served = served(&FlightOptions::default());
    run(async {
        let mut client = served.client().await;
        let (code, text) = refusal(
            ask(&mut client, "SELECT n FROM aa")
                .await
                .expect_err("none"),
        );
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.contains("there is no table 'aa'"), "{text}");
        // One that is found while rows are on their way already.
        let late = ask(&mut client, "SELECT 1 / (n - 99) AS x FROM a").await;
        let (_, text) = refusal(late.expect_err("a division by zero"));
        assert!(text.to_lowercase().contains("zero"), "{text}");
        // And the server goes on.
        assert_eq!(
            ask(&mut client, "SELECT 1")
                .await
                .expect("a row")
                .num_rows(),
            1
        );
    });
}

#[test]
fn strange_tickets_are_refused() {
    let served = served(&FlightOptions::default());
    run(async {
        let mut client = served.client().await;
        let mut statement = client
            .prepare("SELECT 1".to_owned(), None)
            .await
            .expect("planned");
        let prepared = statement.execute().await.expect("planned");
        let ticket = prepared.endpoint[0].ticket.clone().expect("a ticket");
        statement.close().await.expect("closed");
        let closed = client.do_get(ticket.clone()).await.map(|_| ());
        assert_eq!(refusal(closed.expect_err("closed")).0, Code::NotFound);
        let mut bytes = ticket.ticket.to_vec();
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            let ticket = arrow_flight::Ticket::new(bytes[..cut].to_vec());
            assert!(client.do_get(ticket).await.is_err());
        }
        for byte in &mut bytes {
            *byte = !*byte;
        }
        assert!(
            client
                .do_get(arrow_flight::Ticket::new(bytes))
                .await
                .is_err()
        );
    });
}

#[test]
fn who_does_not_know_the_token_gets_nothing() {
    let served = served(&FlightOptions {
        token: Some("secret".to_owned()),
        ..FlightOptions::default()
    });
    run(async {
        let mut client = served.client().await;
        let nothing = ask(&mut client, "SELECT 1").await;
        assert_eq!(
            refusal(nothing.expect_err("no token")).0,
            Code::Unauthenticated
        );
        client.set_token("Secret".to_owned());
        let nothing = ask(&mut client, "SELECT 1").await;
        assert_eq!(
            refusal(nothing.expect_err("a wrong one")).0,
            Code::Unauthenticated
        );
        let nothing = client.get_catalogs().await.map(|_| ());
        assert_eq!(
            refusal(nothing.expect_err("a wrong one")).0,
            Code::Unauthenticated
        );
        client.set_token("secret".to_owned());
        assert!(ask(&mut client, "SELECT 1").await.is_ok());

        let mut client = served.client().await;
        let wrong = client.handshake("anyone", "wrong").await;
        let (_, told) = refusal(wrong.expect_err("a wrong one"));
        assert!(told.contains("token"), "{told}");
        // The handshake gives the client the token that it then goes on with.
        client.handshake("anyone", "secret").await.expect("known");
        assert!(ask(&mut client, "SELECT 1").await.is_ok());
    });
}

#[test]
fn without_a_token_only_this_machine_can_connect() {
    let rows: [Row; 1] = [(0, 0, 0)];
    let fixture = database(&[("/a", &rows)], 1);
    let options = FlightOptions {
        listen: "0.0.0.0:0".parse().expect("an address"),
        ..FlightOptions::default()
    };
    let refused = FlightServer::start(Arc::clone(&fixture.database), &options);
    assert!(refused.expect_err("no token").to_string().contains("token"));
}

/// Rows without end, as far as a test can tell.
const ENDLESS: &str = "SELECT p.n FROM a p, a q, a r, a s, a t, a u, a v, a w";

#[test]
fn a_query_ends_with_its_client() {
    let served = served(&FlightOptions::default());
    run(async {
        // More of them than can run at once: others get their turn only if these end.
        for _ in 0..12 {
            let mut client = served.client().await;
            let info = client.execute(ENDLESS.to_owned(), None).await;
            let mut rows = start(&mut client, info.expect("planned"))
                .await
                .expect("runs");
            assert!(rows.try_next().await.expect("rows").is_some());
        }
        let mut client = served.client().await;
        assert!(ask(&mut client, "SELECT 1").await.is_ok());
    });
}

#[test]
fn a_client_that_takes_nothing_is_told_that_its_query_has_ended() {
    let served = served(&FlightOptions {
        stalled_after: Duration::from_millis(20),
        ..FlightOptions::default()
    });
    run(async {
        let mut client = served.client().await;
        // More than connections hold on the way.
        let large = ENDLESS.replacen("p.n", "repeat('x', 1000)", 1);
        let info = client.execute(large, None).await;
        let mut rows = start(&mut client, info.expect("planned"))
            .await
            .expect("runs");
        let error = loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            match rows.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("an answer that is not whole ended as if it were"),
                Err(error) => break error,
            }
        };
        assert_eq!(refusal(error).0, Code::DeadlineExceeded);
        let mut client = served.client().await;
        assert!(ask(&mut client, "SELECT 1").await.is_ok());
    });
}

#[test]
fn readers_that_take_nothing_keep_nobody_waiting() {
    let served = served(&FlightOptions {
        stalled_after: Duration::from_hours(1),
        ..FlightOptions::default()
    });
    run(async {
        let mut idle = Vec::new();
        // More than run at once.
        for _ in 0..6 {
            let mut client = served.client().await;
            let large = ENDLESS.replacen("p.n", "repeat('x', 1000)", 1);
            let info = client.execute(large, None).await.expect("planned");
            let mut rows = start(&mut client, info).await.expect("runs");
            assert!(rows.try_next().await.expect("rows").is_some());
            idle.push((client, rows));
        }
        let mut client = served.client().await;
        let found = ask(&mut client, "SELECT n FROM a ORDER BY n LIMIT 3").await;
        assert_eq!(numbers(&found.expect("an answer"), 0), [0, 1, 2]);
        // Those that take their rows after all get them.
        for (_, rows) in &mut idle {
            assert!(rows.try_next().await.expect("rows").is_some());
        }
    });
}

#[test]
fn connections_have_a_bound() {
    let served = served(&FlightOptions {
        connections: 1,
        ..FlightOptions::default()
    });
    run(async {
        let mut first = served.client().await;
        assert!(ask(&mut first, "SELECT 1").await.is_ok());
        let second = connect(served.server.address()).await;
        if let Ok(second) = second {
            let mut second = FlightSqlServiceClient::new(second);
            assert!(ask(&mut second, "SELECT 1").await.is_err());
        }
        assert!(ask(&mut first, "SELECT 1").await.is_ok());
        drop(first);
        // Its place is free as soon as the server has seen it go.
        let third = async {
            loop {
                if let Ok(third) = connect(served.server.address()).await
                    && ask(&mut FlightSqlServiceClient::new(third), "SELECT 1")
                        .await
                        .is_ok()
                {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let limit = Duration::from_mins(2);
        assert!(tokio::time::timeout(limit, third).await.is_ok(), "no place");
    });
}
