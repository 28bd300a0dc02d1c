//! Completions of a query that is typed.

use std::collections::BTreeSet;

use asof_sql::Database;

use crate::export::add_paths;

const KEYWORDS: [&str; 34] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "HAVING",
    "JOIN",
    "LEFT JOIN",
    "ASOF JOIN",
    "MATCH_CONDITION",
    "ON",
    "USING",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "INTERVAL",
    "AS",
    "DISTINCT",
    "UNION ALL",
    "WITH",
    "OVER",
    "PARTITION BY",
    "DESC",
    "SHOW TABLES",
    "DESCRIBE",
    "EXPLAIN",
    "FOR SYSTEM_TIME AS OF",
    "count(*)",
    "avg(",
    "min(",
    "max(",
    "nearest(",
];

/// The names that can be completed in a query: tables, columns and paths into them, keywords.
pub struct QueryWords {
    tables: Vec<String>,
    /// Columns of all tables, and paths into them.
    columns: BTreeSet<String>,
}

impl QueryWords {
    /// The names of a database.
    pub fn of(database: &Database) -> Self {
        let mut columns = BTreeSet::new();
        for table in database.tables() {
            if let Some(schema) = database.columns(&table) {
                add_paths(schema.fields(), "", &mut columns);
            }
        }
        QueryWords {
            tables: database.tables(),
            columns,
        }
    }

    /// The start of the word before the cursor, and its completions.
    pub fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = &line[..line.floor_char_boundary(cursor)];
        let is_quoted = before.matches('"').count() % 2 == 1;
        if is_quoted {
            let start = before.rfind('"').unwrap_or(0);
            let name = &before[start + 1..];
            let tables = self.tables.iter().filter(|table| table.starts_with(name));
            return (start, tables.map(|table| format!("\"{table}\"")).collect());
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '/';
        let word = before
            .rsplit(|c: char| !is_word(c))
            .next()
            .unwrap_or_default();
        let start = before.len() - word.len();
        if word.is_empty() {
            return (start, Vec::new());
        }
        let mut found: Vec<String> = Vec::new();
        for table in &self.tables {
            if table.starts_with(word) {
                found.push(in_quotes(table));
            }
        }
        // After an alias and a dot, the columns of any table.
        let (prefix, rest) = match word.split_once('.') {
            Some((alias, rest)) if !self.columns.contains(alias) => (&word[..=alias.len()], rest),
            _ => ("", word),
        };
        let paths = self.columns.iter().filter(|path| is_next(path, rest));
        found.extend(paths.map(|path| format!("{prefix}{path}")));
        if prefix.is_empty() {
            let is_begun = |keyword: &&&str| {
                keyword.len() >= word.len()
                    && keyword.is_char_boundary(word.len())
                    && keyword[..word.len()].eq_ignore_ascii_case(word)
            };
            found.extend(KEYWORDS.iter().filter(is_begun).map(ToString::to_string));
        }
        (start, found)
    }
}

/// Whether a path begins with the typed text, and ends at the next dot.
fn is_next(path: &str, typed: &str) -> bool {
    path.strip_prefix(typed)
        .is_some_and(|rest| !rest.trim_start_matches('.').contains('.'))
}

/// A name quoted for a query.
pub fn in_quotes(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> QueryWords {
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        QueryWords {
            tables: names(&["/odom", "odom", "/scan", "scan"]),
            columns: names(&[
                "log_time",
                "pose",
                "pose.pose",
                "pose.pose.position",
                "ranges",
            ])
            .into_iter()
            .collect(),
        }
    }

    fn completed(line: &str) -> Vec<String> {
        let (start, found) = words().complete(line, line.len());
        found
            .into_iter()
            .map(|word| format!("{}{word}", &line[..start]))
            .collect()
    }

    #[test]
    fn tables_columns_and_keywords_are_completed() {
        assert_eq!(
            completed("SELECT 1 FROM \"/od"),
            ["SELECT 1 FROM \"/odom\""]
        );
        assert_eq!(completed("SELECT 1 FROM /sc"), ["SELECT 1 FROM \"/scan\""]);
        assert_eq!(completed("SELECT ran"), ["SELECT ranges"]);
        assert_eq!(completed("SELECT o.ran"), ["SELECT o.ranges"]);
        assert_eq!(completed("sel"), ["SELECT"]);
    }

    #[test]
    fn a_path_is_completed_a_step_at_a_time() {
        assert_eq!(completed("SELECT pose."), ["SELECT pose.pose"]);
        assert_eq!(
            completed("SELECT o.pose.pose.p"),
            ["SELECT o.pose.pose.position"]
        );
        assert_eq!(completed("SELECT "), Vec::<String>::new());
        assert_eq!(completed("é"), Vec::<String>::new());
    }
}
