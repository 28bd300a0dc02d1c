//! Statements that clients have prepared.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use datafusion::common::ScalarValue;
use tonic::Status;

/// A statement, with the values of its parameters where a client has given some.
#[derive(Debug, Clone)]
pub struct Statement {
    pub sql: String,
    pub parameters: Vec<ScalarValue>,
}

impl Statement {
    fn bytes(&self) -> usize {
        let values = self.parameters.iter().map(ScalarValue::size);
        size_of::<Self>() + self.sql.len() + values.sum::<usize>()
    }
}

/// Statements that clients have prepared and not closed. Beyond the limit, the least recently used one is
/// dropped: its client has forgotten it, or prepares it again.
#[derive(Debug)]
pub struct Statements {
    budget: usize,
    kept: Mutex<StatementCache>,
}

#[derive(Debug, Default)]
struct StatementCache {
    statements: BTreeMap<u64, (u64, Statement)>,
    bytes: usize,
    next: u64,
    /// Counts uses.
    clock: u64,
}

impl Statements {
    /// Holds at most this many bytes of them.
    pub fn new(budget: usize) -> Self {
        Statements {
            budget,
            kept: Mutex::default(),
        }
    }

    /// Stores a statement, and returns its handle.
    pub fn keep(&self, sql: String) -> Vec<u8> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let name = kept.next;
        kept.next += 1;
        let parameters = Vec::new();
        kept.put(name, Statement { sql, parameters }, self.budget);
        name.to_be_bytes().to_vec()
    }

    /// Gives values to the parameters of a statement.
    pub fn bind(&self, handle: &[u8], parameters: Vec<ScalarValue>) -> Result<(), Status> {
        let name = name_of(handle)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = kept.take(name).ok_or_else(unknown)?;
        statement.parameters = parameters;
        kept.put(name, statement, self.budget);
        Ok(())
    }

    /// A statement, by its handle.
    pub fn get(&self, handle: &[u8]) -> Result<Statement, Status> {
        let name = name_of(handle)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let statement = kept.take(name).ok_or_else(unknown)?;
        kept.put(name, statement.clone(), self.budget);
        Ok(statement)
    }

    /// Drops a statement, if it exists.
    pub fn close(&self, handle: &[u8]) {
        if let Ok(name) = name_of(handle) {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.take(name);
        }
    }
}

impl StatementCache {
    fn take(&mut self, name: u64) -> Option<Statement> {
        let (_, statement) = self.statements.remove(&name)?;
        self.bytes -= statement.bytes();
        Some(statement)
    }

    /// Stores it as the most recently used. It stays, however large it is: requests are bounded.
    fn put(&mut self, name: u64, statement: Statement, budget: usize) {
        self.bytes += statement.bytes();
        while self.bytes > budget {
            let used = self.statements.iter().map(|(name, (used, _))| (used, name));
            let Some((_, &oldest)) = used.min() else {
                break;
            };
            self.take(oldest);
        }
        self.clock += 1;
        self.statements.insert(name, (self.clock, statement));
    }
}

fn name_of(handle: &[u8]) -> Result<u64, Status> {
    let bytes = handle.try_into().map_err(|_| unknown())?;
    Ok(u64::from_be_bytes(bytes))
}

fn unknown() -> Status {
    Status::not_found("this prepared statement does not exist, or not any more; prepare it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_known_until_it_is_closed() {
        let statements = Statements::new(1 << 20);
        let one = statements.keep("SELECT ?".to_owned());
        let other = statements.keep("SELECT 2".to_owned());
        statements.bind(&one, vec![ScalarValue::from(7)]).unwrap();
        let found = statements.get(&one).unwrap();
        assert_eq!(found.sql, "SELECT ?");
        assert_eq!(found.parameters, [ScalarValue::from(7)]);
        statements.close(&one);
        assert!(statements.get(&one).is_err());
        assert!(statements.bind(&one, Vec::new()).is_err());
        assert_eq!(statements.get(&other).unwrap().sql, "SELECT 2");
        for strange in [&b""[..], b"SELECT 1", b"123456789"] {
            assert!(statements.get(strange).is_err());
        }
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_gives_way() {
        let each = 10_000;
        let budget = 3 * each + 3 * size_of::<Statement>();
        let statements = Statements::new(budget);
        let keep = || statements.keep("x".repeat(each));
        let (first, second, third) = (keep(), keep(), keep());
        statements.get(&first).unwrap();
        let fourth = keep();
        assert!(statements.get(&second).is_err());
        for known in [&first, &third, &fourth] {
            assert!(statements.get(known).is_ok());
        }
        // The values of parameters count too.
        let value = ScalarValue::from("y".repeat(each));
        statements.bind(&first, vec![value]).unwrap();
        assert!(statements.get(&third).is_err());
        assert!(statements.get(&first).is_ok());
        assert!(statements.kept.lock().unwrap().bytes <= budget);
    }
}
