//! The tables of a database by their names. A table is made when a query first names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;

use crate::catalogue::{self, AboutTable};
use crate::database::{Shared, alias_of};
use crate::meanings;
use crate::topic::TopicTable;

/// The tables of a database.
#[derive(Debug)]
pub(crate) struct Tables {
    shared: Arc<Shared>,
    names: BTreeMap<String, Kind>,
    /// Names that both a recording and the user's own tables have.
    pub taken: Vec<String>,
    made: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
    /// Notes about the tables for the user.
    told: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// The messages of this topic.
    Topic(String),
    /// What is known about the recordings.
    About,
    /// All messages of one meaning.
    Meaning,
    /// The rows of the user's own table.
    Own,
}

impl Tables {
    pub fn of(shared: &Arc<Shared>) -> Self {
        let topics = shared.topics();
        let mut aliases: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for topic in &topics {
            aliases.entry(alias_of(topic)).or_default().push(topic);
        }
        // A topic's own name takes precedence over tables about the recordings, and those over its alias.
        let mut names: BTreeMap<String, Kind> = BTreeMap::new();
        for (alias, of) in &aliases {
            if let [only] = of[..] {
                names.insert(alias.clone(), Kind::Topic(only.clone()));
            }
        }
        let about = catalogue::NAMES.iter().map(|&name| (name, Kind::About));
        names.extend(about.map(|(name, kind)| (name.to_owned(), kind)));
        let topics = topics.into_iter();
        names.extend(topics.map(|topic| (topic.clone(), Kind::Topic(topic))));
        // The topic /diagnostics keeps its own name in quotes.
        let meanings = meanings::tables_of(shared);
        names.extend(meanings.map(|name| (name.to_owned(), Kind::Meaning)));
        // The user's own table keeps its name when a catalogue comes to have a topic of that name.
        let own = shared.options.tables.keys();
        let taken = own.filter(|name| names.insert((*name).clone(), Kind::Own).is_some());
        let taken: Vec<String> = taken.cloned().collect();
        let told = taken.iter().map(|name| {
            format!("'{name}' is your own table; that of the recordings with this name is hidden")
        });
        let told = Mutex::new(told.collect());
        Tables {
            shared: Arc::clone(shared),
            names,
            taken,
            made: Mutex::default(),
            told: Arc::new(told),
        }
    }

    pub fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// A table, made if no query has named it yet.
    pub fn resolved(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(kind) = self.names.get(name) else {
            return Ok(None);
        };
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let made: Arc<dyn TableProvider> = match kind {
            Kind::Topic(topic) => {
                let tell = &mut |text| {
                    let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.insert(text);
                };
                Arc::new(TopicTable::new(&self.shared, topic, tell)?)
            }
            Kind::About => Arc::new(AboutTable::new(name, &self.shared, &self.told)),
            Kind::Meaning => match meanings::table_of(name, &self.shared)? {
                Some(table) => table,
                None => return Ok(None),
            },
            Kind::Own => match self.shared.options.tables.get(name) {
                Some(own) => Arc::new(own.for_engine()?),
                None => return Ok(None),
            },
        };
        // Notes are about topics, and a table of notes has those of all.
        if *kind == Kind::About && name == catalogue::PROBLEMS {
            for kind in self.names.values() {
                if let Kind::Topic(topic) = kind {
                    self.resolved(topic)?;
                }
            }
        }
        lock().insert(name.to_owned(), Arc::clone(&made));
        Ok(Some(made))
    }

    /// The columns of a table.
    pub fn columns(&self, name: &str) -> Option<SchemaRef> {
        Some(self.resolved(name).ok()??.schema())
    }

    /// The columns of the tables that queries have named so far.
    pub fn known_columns(&self) -> Vec<SchemaRef> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.values().map(|table| table.schema()).collect()
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.resolved(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }
}
