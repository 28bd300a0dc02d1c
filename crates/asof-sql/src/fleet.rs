//! The recordings of a catalogue, which answers what it can before any of them is loaded.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use asof_catalogue::{
    Catalogue, Contents, FoundRecording, NamePattern, RecordingFilter, Search, TopicKind,
};
#[cfg(feature = "distributed")]
use asof_catalogue::{FOLDER, RecordingRow};
use asof_core::{Channel, Schema};
use asof_formats::{OpenOptions, Store};
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use datafusion::arrow::compute::{and, cast};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Like, Operator};

use crate::database::Shared;
#[cfg(feature = "distributed")]
use crate::distributed::{FleetVersion, RecordingAddress};
use crate::labels::{LabelFilter, ROBOT, RecordingLabels, SITE, TAGS};
use crate::pushdown::Pushdown;
use crate::recordings::{Chosen, Opened};
use crate::topic::RECORDING;

/// A catalogue whose recordings belong to a database.
#[derive(Debug, Clone)]
pub struct FleetPlace {
    /// The catalogue.
    pub catalogue: Arc<Catalogue>,
    /// How its recordings are opened.
    pub open: OpenOptions,
}

/// The same with what is known of it.
pub(crate) struct Fleet {
    pub place: FleetPlace,
    contents: RwLock<Arc<Contents>>,
    definitions: Mutex<Option<Definitions>>,
}

/// The definitions of a generation, by their hashes.
type Definitions = (u64, Arc<HashMap<String, Arc<Schema>>>);

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fleet")
            .field(&self.place.catalogue.address())
            .finish()
    }
}

/// An error of a catalogue, wrapped for the engine.
pub(crate) fn failed(error: asof_catalogue::CatalogueError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Fleet {
    pub fn open(place: FleetPlace) -> Result<Self> {
        let contents = place.catalogue.contents().map_err(failed)?;
        Ok(Fleet {
            place,
            contents: RwLock::new(Arc::new(contents)),
            definitions: Mutex::default(),
        })
    }

    pub fn contents(&self) -> Arc<Contents> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&contents)
    }

    /// Reads what is there now, if the catalogue has changed. Returns whether it has.
    pub fn follow(&self) -> Result<bool> {
        let head = self.place.catalogue.existing_head().map_err(failed)?;
        if head.generation == self.contents().generation {
            return Ok(false);
        }
        let now = self.place.catalogue.contents().map_err(failed)?;
        *self
            .contents
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        Ok(true)
    }

    fn definitions(&self) -> Result<Arc<HashMap<String, Arc<Schema>>>> {
        let generation = self.contents().generation;
        let mut known = self
            .definitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((of, definitions)) = &*known
            && *of == generation
        {
            return Ok(Arc::clone(definitions));
        }
        let read = Arc::new(self.place.catalogue.definitions().map_err(failed)?);
        *known = Some((generation, Arc::clone(&read)));
        Ok(read)
    }

    /// A channel for each kind of a topic.
    pub fn channels_of(&self, topic: &str) -> Result<Vec<Arc<Channel>>> {
        let contents = self.contents();
        let first = TopicKind {
            topic: topic.to_owned(),
            ..TopicKind::default()
        };
        let kinds = contents.kinds.range(first..);
        let kinds: Vec<&TopicKind> = kinds.take_while(|kind| kind.topic == topic).collect();
        if kinds.is_empty() {
            return Ok(Vec::new());
        }
        let definitions = self.definitions()?;
        let channel = |kind: &TopicKind| {
            let hash = kind.schema_hash.as_ref();
            Arc::new(Channel {
                topic: kind.topic.clone(),
                message_encoding: kind.encoding.clone(),
                schema: hash.and_then(|hash| definitions.get(hash).cloned()),
                ..Channel::default()
            })
        };
        Ok(kinds.into_iter().map(channel).collect())
    }

    /// The path from the root of the recording with this name in rows; `None` where only a search can tell.
    fn path_of(&self, name: &str) -> Option<String> {
        let root = self.place.catalogue.root();
        let probe = root.shown_address_of("x");
        let Some(path) = name.strip_prefix(probe.strip_suffix('x')?) else {
            // No recording below the root has this name, nor is it the path of one that does.
            return Some(name.to_owned());
        };
        (root.shown_address_of(path) == name).then(|| path.to_owned())
    }

    /// The search that leaves out as much as possible; what it finds is filtered afterwards.
    fn search(&self, topics: Option<&[&str]>, wanted: &Pushdown, about: &[&Expr]) -> Search {
        let mut search = Search {
            topics: topics
                .unwrap_or_default()
                .iter()
                .map(|topic| NamePattern::new(topic))
                .collect(),
            range: wanted.range,
            with_damaged: true,
            ..Search::default()
        };
        let names = wanted.recordings.iter().flatten();
        let mut named: Option<Vec<String>> = wanted
            .recordings
            .is_some()
            .then(|| names.map(String::clone).collect());
        for filter in about {
            if named.is_none() {
                named = values_of(filter, &|expr| is_column(expr, RECORDING));
            }
            if let Some(robots) = values_of(filter, &|expr| is_column(expr, ROBOT)) {
                narrow(&mut search.robots, &robots);
            }
            if search.robots.is_empty() {
                search.robots.extend(start_of(filter, ROBOT));
            }
            if let Some(sites) = values_of(filter, &|expr| is_column(expr, SITE)) {
                narrow(&mut search.sites, &sites);
            }
            search.tags.extend(tag_in(filter));
        }
        let paths = named.and_then(|names| names.iter().map(|name| self.path_of(name)).collect());
        search.recordings = paths.unwrap_or_default();
        search
    }

    /// All that names and labels say, asked of the catalogue's own columns, so that nothing is loaded of other recordings.
    fn filter(&self, wanted: &Pushdown, filter: Option<&LabelFilter>) -> Option<RecordingFilter> {
        let (names, filter) = (wanted.recordings.clone(), filter.cloned());
        if names.is_none() && filter.is_none() {
            return None;
        }
        let labels = filter.iter().flat_map(|filter| filter.schema.fields());
        let labels = labels.map(|field| field.name().clone());
        let columns = labels.chain([RECORDING.to_owned()]).collect();
        let catalogue = Arc::clone(&self.place.catalogue);
        Some(RecordingFilter::new(columns, move |rows| {
            let found = passing(rows, catalogue.root(), names.as_ref(), filter.as_ref());
            // Where a filter fails all pass here, and it is asked again of those with the topics, as it is of named recordings.
            found.unwrap_or_else(|_| vec![true; rows.num_rows()].into())
        }))
    }

    pub fn select(
        &self,
        shared: &Shared,
        topics: Option<&[&str]>,
        wanted: &Pushdown,
        about: &[&Expr],
        filter: Option<&LabelFilter>,
    ) -> Result<Vec<Chosen>> {
        if topics.is_some_and(<[&str]>::is_empty) {
            return Ok(Vec::new());
        }
        let mut search = self.search(topics, wanted, about);
        search.filter = self.filter(wanted, filter);
        let catalogue = &self.place.catalogue;
        let mut found = catalogue.find(&search).map_err(failed)?;
        found.recordings.retain(|one| one.row.format.is_some());
        let opened = catalogue
            .open_found(&found, &self.place.open)
            .map_err(failed)?;
        #[cfg(feature = "distributed")]
        let generation = found.head.as_ref().map(|head| head.generation);
        let rows = found.recordings.into_iter();
        let mut chosen = Vec::with_capacity(opened.len());
        let mut added = Vec::with_capacity(opened.len());
        for (recording, FoundRecording { row, topics: own }) in opened.into_iter().zip(rows) {
            let is_whole = row.problems.is_empty();
            // A pattern may match other topics too.
            let own = own.into_iter();
            let own =
                own.filter(|(topic, _)| topics.is_some_and(|all| all.contains(&topic.as_str())));
            let (mut names, mut messages) = (Vec::new(), is_whole.then_some(0));
            for (topic, found) in own {
                messages = messages.zip(found.messages).map(|(sum, more)| sum + more);
                names.push(topic);
            }
            if topics.is_some() && names.is_empty() {
                continue;
            }
            let name = recording.place().to_owned();
            #[cfg(feature = "distributed")]
            let address = (shared.is_distributed).then(|| self.address_of(&name, &row, generation));
            added.push(Opened {
                described: Some(Arc::new(recording.described().clone())),
                version: Some((row.size, row.modified, row.e_tag)),
                labels: Some(RecordingLabels {
                    robot: row.robot,
                    site: row.site,
                    tags: row.tags,
                }),
                #[cfg(feature = "distributed")]
                address: address.flatten(),
                ..Opened::new(name, Arc::new(recording))
            });
            chosen.push((names, messages));
        }
        let places = shared.add(added);
        let places = places.into_iter().zip(chosen);
        let chosen = places.map(|(place, (topics, messages))| Chosen {
            place,
            topics,
            messages,
        });
        Ok(chosen.collect())
    }

    /// The address of a recording, the same on all machines; `None` where it contains a secret, or is not text.
    #[cfg(feature = "distributed")]
    fn address_of(
        &self,
        name: &str,
        row: &RecordingRow,
        generation: Option<u64>,
    ) -> Option<RecordingAddress> {
        let root = self.place.catalogue.root();
        let mut address = root.address_of(&row.recording);
        if root.is_remote() {
            if address != name {
                return None;
            }
        } else if let Ok(whole) = std::fs::canonicalize(&address) {
            whole.to_str()?.clone_into(&mut address);
        }
        Some(RecordingAddress {
            name: name.to_owned(),
            address,
            size: Some(row.size),
            version: version_of(&self.place.catalogue, row, generation),
        })
    }
}

/// The version of a recording in a search of this generation, where others find the catalogue beside it.
#[cfg(feature = "distributed")]
fn version_of(
    catalogue: &Catalogue,
    row: &RecordingRow,
    generation: Option<u64>,
) -> Option<FleetVersion> {
    let root = catalogue.root();
    let is_beside = root.inside(FOLDER).ok()?.address() == catalogue.address();
    let (fleet, modified) = if root.is_remote() {
        row.e_tag.as_ref()?;
        (root.address(), None)
    } else {
        let whole = std::fs::canonicalize(root.address()).ok()?;
        (whole.to_str()?.to_owned(), Some(row.modified?))
    };
    is_beside.then_some(FleetVersion {
        fleet,
        generation: generation?,
        e_tag: row.e_tag.clone(),
        modified,
    })
}

/// Which rows of a catalogue's recordings have one of these names, and pass a filter.
fn passing(
    rows: &RecordBatch,
    root: &Store,
    names: Option<&BTreeSet<String>>,
    filter: Option<&LabelFilter>,
) -> Result<BooleanArray> {
    let column = |name: &str| {
        let found = rows.column_by_name(name);
        found.ok_or_else(|| internal_datafusion_err!("the catalogue lacks the column {name}"))
    };
    let paths = column(RECORDING)?.as_string::<i32>().iter();
    let shown = paths.map(|path| Some(root.shown_address_of(path?)));
    let shown: StringArray = shown.collect();
    let is_named = |name: Option<&str>| {
        Some(names.is_none_or(|names| name.is_some_and(|name| names.contains(name))))
    };
    let named: BooleanArray = shown.iter().map(is_named).collect();
    let Some(filter) = filter else {
        return Ok(named);
    };
    let shown: ArrayRef = Arc::new(shown);
    let labels = filter.schema.fields().iter().map(|field| {
        if field.name() == RECORDING {
            return Ok(Arc::clone(&shown));
        }
        Ok(cast(column(field.name())?, field.data_type())?)
    });
    let labelled = RecordBatch::try_new(
        Arc::clone(&filter.schema),
        labels.collect::<Result<Vec<_>>>()?,
    )?;
    Ok(and(&named, &filter.passing(&labelled)?)?)
}

fn is_column(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Column(column) if column.name == name)
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// The values of which a filter demands one: `=`, `IN`, and several of these with `OR`.
fn values_of(filter: &Expr, is_meant: &dyn Fn(&Expr) -> bool) -> Option<Vec<String>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Eq if is_meant(left) => Some(vec![text_of(right)?.to_owned()]),
            Operator::Eq if is_meant(right) => Some(vec![text_of(left)?.to_owned()]),
            Operator::Or => {
                let mut values = values_of(left, is_meant)?;
                values.extend(values_of(right, is_meant)?);
                Some(values)
            }
            _ => None,
        },
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) if is_meant(expr) => {
            let texts = list.iter().map(|one| text_of(one).map(str::to_owned));
            texts.collect()
        }
        _ => None,
    }
}

/// Adds names to a criterion that has none yet. A name that is a glob too would match more, and is left to the filter.
fn narrow(criterion: &mut Vec<NamePattern>, names: &[String]) {
    let patterns = names.iter().map(|name| NamePattern::new(name));
    let patterns: Vec<NamePattern> = patterns.collect();
    if criterion.is_empty() && patterns.iter().all(NamePattern::is_exact) {
        *criterion = patterns;
    }
}

/// The pattern of the names of which a filter demands how they start: `robot LIKE 'r7%'`.
fn start_of(filter: &Expr, name: &str) -> Option<NamePattern> {
    let Expr::Like(Like {
        negated: false,
        case_insensitive: false,
        expr,
        pattern,
        ..
    }) = filter
    else {
        return None;
    };
    let pattern = text_of(pattern).filter(|_| is_column(expr, name))?;
    let start = pattern.split(['%', '_', '\\']).next()?;
    let all = NamePattern::new(&format!("{start}*"));
    (NamePattern::new(start).is_exact() && all.is_match(start)).then_some(all)
}

/// The tag that a filter demands: `tags['weather'] = 'rain'`.
fn tag_in(filter: &Expr) -> Option<(String, NamePattern)> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = filter
    else {
        return None;
    };
    let (Expr::ScalarFunction(call), value) = (&**left, text_of(right)?) else {
        return None;
    };
    let [tags, key] = &call.args[..] else {
        return None;
    };
    let pattern = NamePattern::new(value);
    let is_tag = call.func.name() == "get_field" && is_column(tags, TAGS) && pattern.is_exact();
    is_tag.then(|| Some((text_of(key)?.to_owned(), pattern)))?
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[cfg(feature = "distributed")]
    #[test]
    fn others_find_what_the_catalogue_has_of_a_recording_on_a_server() {
        let row = RecordingRow {
            e_tag: Some("\"1\"".to_owned()),
            ..RecordingRow::default()
        };
        let root = || Store::at("http://localhost/fleet").expect("an address");
        let beside = Catalogue::beside(root()).expect("a catalogue");
        let found = version_of(&beside, &row, Some(7)).expect("a version");
        assert_eq!(found.fleet, "http://localhost/fleet");
        assert_eq!((found.generation, &found.e_tag), (7, &row.e_tag));
        let unversioned = RecordingRow::default();
        assert_eq!(version_of(&beside, &unversioned, Some(7)), None);
        // Where the catalogue is elsewhere, an executor may have no way to it.
        let elsewhere = Store::at("http://localhost/catalogue").expect("an address");
        let elsewhere = Catalogue::elsewhere(root(), elsewhere);
        assert_eq!(version_of(&elsewhere, &row, Some(7)), None);
    }

    #[cfg(feature = "distributed")]
    #[test]
    fn others_find_what_the_catalogue_has_of_a_recording_on_a_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = |path: &std::path::Path| Store::at(path).expect("a folder");
        let mut row = RecordingRow {
            modified: Some(7.into()),
            ..RecordingRow::default()
        };
        let beside = Catalogue::beside(store(folder.path())).expect("a catalogue");
        let found = version_of(&beside, &row, Some(1)).expect("a version");
        let whole = folder.path().canonicalize().expect("it is there");
        assert_eq!(found.fleet, whole.display().to_string());
        assert_eq!((found.e_tag, found.modified), (None, row.modified));
        let elsewhere = store(&folder.path().join("catalogue"));
        let elsewhere = Catalogue::elsewhere(store(folder.path()), elsewhere);
        assert_eq!(version_of(&elsewhere, &row, Some(1)), None);
        row.modified = None;
        assert_eq!(version_of(&beside, &row, Some(1)), None);
    }

    #[test]
    fn a_filter_that_demands_one_of_several_names_says_which() {
        let robots = |filter: &Expr| values_of(filter, &|expr| is_column(expr, ROBOT));
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(robots(&col("robot").eq(lit("r7"))), names(&["r7"]));
        let either = lit("a").eq(col("robot")).or(col("robot").eq(lit("b")));
        assert_eq!(robots(&either), names(&["a", "b"]));
        let list = col("robot").in_list(vec![lit("a"), lit("b")], false);
        assert_eq!(robots(&list), names(&["a", "b"]));
        let negated = col("robot").in_list(vec![lit("a")], true);
        let mixed = col("robot").eq(lit("a")).or(col("site").eq(lit("b")));
        for filter in [&negated, &mixed, &col("robot").not_eq(lit("a"))] {
            assert_eq!(robots(filter), None);
        }
    }

    #[test]
    fn a_filter_on_how_a_name_starts_is_a_pattern() {
        let start = |pattern: &str| start_of(&col("robot").like(lit(pattern)), ROBOT);
        let text = |pattern: &str| start(pattern).map(|start| start.as_str().to_owned());
        assert_eq!(text("r7%").as_deref(), Some("r7*"));
        assert_eq!(text("r_7%").as_deref(), Some("r*"));
        assert_eq!(text(r"r\%7").as_deref(), Some("r*"));
        let long = format!("{}%", "r".repeat(5_000));
        for pattern in ["r[1%", "r}%", "r*%", &long] {
            assert_eq!(text(pattern), None, "{pattern}");
        }
        for other in [
            col("robot").not_like(lit("r7%")),
            col("robot").ilike(lit("r7%")),
            col("site").like(lit("r7%")),
        ] {
            assert!(start_of(&other, ROBOT).is_none());
        }
    }

    #[test]
    fn a_name_that_is_a_glob_narrows_nothing() {
        let mut criterion = Vec::new();
        narrow(&mut criterion, &["r[1-4]".to_owned(), "r7".to_owned()]);
        assert!(criterion.is_empty());
        narrow(&mut criterion, &["r7".to_owned()]);
        assert_eq!(criterion.len(), 1);
    }
}
