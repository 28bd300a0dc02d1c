//! The metadata of a dataset: `meta/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use serde_json::{Value, json};

use super::base::Base;
use super::data::Table;
use super::reels::FilmPlace;
use super::stats::Stats;
use super::{CHUNK_FILES, LerobotError, failed, file_path};

/// The path of episodes.
const EPISODES_PATH: &str = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet";

/// A written episode.
pub(super) struct Episode {
    pub(super) task: usize,
    pub(super) frames: usize,
    /// The number of its file of rows, and its first frame in the dataset.
    pub(super) file: usize,
    pub(super) first: usize,
    pub(super) films: BTreeMap<String, FilmPlace>,
    pub(super) stats: BTreeMap<String, Stats>,
}

/// Writes everything except `info.json`.
pub(super) fn write(
    folder: &Path,
    tasks: &[String],
    episodes: &[Episode],
    base: &Base,
) -> Result<(), LerobotError> {
    let path = folder.join(file_path(EPISODES_PATH, base.episode_files));
    for folder in [Some(folder.join("meta")), path.parent().map(Path::to_owned)] {
        let Some(folder) = folder else { continue };
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    }
    write_tasks(folder, tasks)?;
    write_episodes(&path, tasks, episodes, base)?;
    let mut all = serde_json::Map::new();
    for name in episodes
        .first()
        .into_iter()
        .flat_map(|first| first.stats.keys())
    {
        let parts: Vec<&Stats> = episodes
            .iter()
            .filter_map(|episode| episode.stats.get(name))
            .collect();
        let known = base.stats.get(name);
        let known = known.map(|known| Stats::from_json(known, parts[0]));
        if base.episodes > 0 && known.is_none() {
            // Statistics of a part of the episodes would be wrong ones.
            continue;
        }
        let parts: Vec<&Stats> = known.iter().chain(parts).collect();
        if let Some(stats) = Stats::united(&parts) {
            all.insert(name.clone(), stats.to_json());
        }
    }
    write_json(&folder.join("meta/stats.json"), &Value::Object(all))
}

pub(super) fn write_json(path: &Path, value: &Value) -> Result<(), LerobotError> {
    let text = format!("{value:#}\n");
    std::fs::write(path, text).map_err(|error| failed(path, &error))
}

/// A table whose rows are labelled by texts, as in pandas: LeRobot looks up tasks by these labels.
fn write_tasks(folder: &Path, tasks: &[String]) -> Result<(), LerobotError> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(
        (0..tasks.len()).map(|at| at as i64),
    ));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(tasks));
    let batch = RecordBatch::try_from_iter([("task_index", numbers), ("task", texts)])?;
    let column = |name: &str, kind: &str, numpy: &str| json!({"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": null});
    let pandas = json!({
        "index_columns": ["task"],
        "column_indexes": [column("", "unicode", "object")],
        "columns": [column("task_index", "int64", "int64"), column("task", "unicode", "object")],
        "pandas_version": "2.0.0",
    });
    let schema = Schema::clone(&batch.schema());
    let metadata = [("pandas".to_owned(), pandas.to_string())];
    let batch = batch.with_schema(Arc::new(schema.with_metadata(metadata.into())))?;
    let mut writer = Table::start(&folder.join("meta/tasks.parquet"), &batch.schema())?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

fn write_episodes(
    path: &Path,
    tasks: &[String],
    episodes: &[Episode],
    base: &Base,
) -> Result<(), LerobotError> {
    let numbers = |value: &dyn Fn(&Episode) -> usize| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(
            episodes.iter().map(|episode| value(episode) as i64),
        ))
    };
    let mut columns: Vec<(String, ArrayRef)> = vec![(
        "episode_index".to_owned(),
        Arc::new(Int64Array::from_iter_values(
            (base.episodes..base.episodes + episodes.len()).map(|at| at as i64),
        )),
    )];
    let mut named = ListBuilder::new(StringBuilder::new());
    for episode in episodes {
        named.values().append_value(&tasks[episode.task]);
        named.append(true);
    }
    columns.push(("tasks".to_owned(), Arc::new(named.finish())));
    columns.push(("length".to_owned(), numbers(&|episode| episode.frames)));
    columns.push((
        "data/chunk_index".to_owned(),
        numbers(&|episode| episode.file / CHUNK_FILES),
    ));
    columns.push((
        "data/file_index".to_owned(),
        numbers(&|episode| episode.file % CHUNK_FILES),
    ));
    columns.push((
        "dataset_from_index".to_owned(),
        numbers(&|episode| episode.first),
    ));
    columns.push((
        "dataset_to_index".to_owned(),
        numbers(&|episode| episode.first + episode.frames),
    ));
    for name in episodes
        .first()
        .into_iter()
        .flat_map(|first| first.films.keys())
    {
        let place = |episode: &Episode| episode.films.get(name).copied();
        let number = |value: &dyn Fn(FilmPlace) -> usize| {
            numbers(&|episode| place(episode).map_or(0, value))
        };
        let time = |value: &dyn Fn(FilmPlace) -> f64| -> ArrayRef {
            let times = episodes
                .iter()
                .map(|episode| place(episode).map_or(0.0, value));
            Arc::new(Float64Array::from_iter_values(times))
        };
        columns.push((
            format!("videos/{name}/chunk_index"),
            number(&|place| place.chunk),
        ));
        columns.push((
            format!("videos/{name}/file_index"),
            number(&|place| place.file),
        ));
        columns.push((
            format!("videos/{name}/from_timestamp"),
            time(&|place| place.from),
        ));
        columns.push((
            format!("videos/{name}/to_timestamp"),
            time(&|place| place.to),
        ));
    }
    columns.extend(stats_columns(episodes));
    let file = base.episode_files;
    for (name, number) in [
        ("meta/episodes/chunk_index", file / CHUNK_FILES),
        ("meta/episodes/file_index", file % CHUNK_FILES),
    ] {
        columns.push((name.to_owned(), numbers(&|_| number)));
    }
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(name, array.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let mut writer = Table::start(path, &batch.schema())?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// `stats/observation.state/mean` and similar ones.
fn stats_columns(episodes: &[Episode]) -> Vec<(String, ArrayRef)> {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let first = episodes.first().into_iter().flat_map(|first| &first.stats);
    for (name, stats) in first {
        let own = |episode: &Episode| episode.stats.get(name).cloned();
        for (kind, _) in &stats.values {
            let values = |episode: &Episode| -> Vec<f64> {
                let stats = own(episode).map(|stats| stats.values).unwrap_or_default();
                let found = stats.into_iter().find(|(own, _)| own == kind);
                found.map(|(_, values)| values).unwrap_or_default()
            };
            let column: ArrayRef = if stats.is_picture {
                let mut all =
                    ListBuilder::new(ListBuilder::new(ListBuilder::new(Float64Builder::new())));
                for episode in episodes {
                    for value in values(episode) {
                        all.values().values().values().append_value(value);
                        all.values().values().append(true);
                        all.values().append(true);
                    }
                    all.append(true);
                }
                Arc::new(all.finish())
            } else {
                let mut all = ListBuilder::new(Float64Builder::new());
                for episode in episodes {
                    all.values().append_slice(&values(episode));
                    all.append(true);
                }
                Arc::new(all.finish())
            };
            columns.push((format!("stats/{name}/{kind}"), column));
        }
        let mut counts = ListBuilder::new(arrow_array::builder::Int64Builder::new());
        for episode in episodes {
            counts
                .values()
                .append_value(own(episode).map_or(0, |stats| stats.count as i64));
            counts.append(true);
        }
        columns.push((format!("stats/{name}/count"), Arc::new(counts.finish())));
    }
    columns
}
