//! The dataset that is appended to.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use super::map::OWN;
use super::{DatasetMap, LerobotError, failed};

/// What a dataset has before episodes are added; nothing, for a new one.
#[derive(Debug, Default)]
pub(super) struct Base {
    pub(super) episodes: usize,
    pub(super) frames: usize,
    pub(super) tasks: Vec<String>,
    /// The number of the next file of rows, of episodes, and of each feature's videos.
    pub(super) data_files: usize,
    pub(super) episode_files: usize,
    pub(super) films: BTreeMap<String, usize>,
    pub(super) stats: serde_json::Map<String, Value>,
    features: Option<Value>,
}

impl Base {
    /// Reads what a map's dataset has.
    pub(super) fn read(folder: &Path, map: &DatasetMap) -> Result<Self, LerobotError> {
        let path = folder.join("meta/info.json");
        let info = json(&path)?;
        let other = |what: &str, known: &Value, wanted: &dyn std::fmt::Display| {
            LerobotError::Other(format!(
                "{} has {what} {known}, and the map {wanted}; a dataset has one",
                folder.display()
            ))
        };
        if info["codebase_version"] != "v3.0" {
            return Err(other("version", &info["codebase_version"], &"makes v3.0"));
        }
        if info["fps"].as_f64() != Some(f64::from(map.hz)) {
            return Err(other("the rate", &info["fps"], &map.hz));
        }
        if let Some(robot) = &map.robot_type
            && info["robot_type"] != robot.as_str()
        {
            return Err(other("the robot", &info["robot_type"], robot));
        }
        let count = |name: &str| {
            let count = info[name]
                .as_u64()
                .and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| {
                LerobotError::Other(format!("{} has no number of {name}", path.display()))
            })
        };
        let known = info["features"].as_object().cloned().unwrap_or_default();
        let own = |name: &&String| !OWN.contains(&name.as_str());
        let mut names: Vec<&String> = known.keys().filter(own).collect();
        names.sort();
        if !names.iter().copied().eq(map.features.keys()) {
            let known = names.iter().map(|name| name.as_str()).collect::<Vec<_>>();
            let wanted = map.features.keys().cloned().collect::<Vec<_>>();
            let known = Value::from(known.join(", "));
            return Err(other("the features", &known, &wanted.join(", ")));
        }
        let films = names.iter().map(|name| {
            let next = next_file(&folder.join("videos").join(name.as_str()), "mp4");
            ((*name).clone(), next)
        });
        Ok(Base {
            episodes: count("total_episodes")?,
            frames: count("total_frames")?,
            tasks: tasks(&folder.join("meta/tasks.parquet"))?,
            data_files: next_file(&folder.join("data"), "parquet"),
            episode_files: next_file(&folder.join("meta/episodes"), "parquet"),
            films: films.collect(),
            stats: (json(&folder.join("meta/stats.json"))?.as_object().cloned())
                .unwrap_or_default(),
            features: Some(info["features"].clone()),
        })
    }

    /// Ensures that new episodes have the same features.
    pub(super) fn agree(&self, features: &Value) -> Result<(), LerobotError> {
        let Some(known) = &self.features else {
            return Ok(());
        };
        let shape = |features: &Value, name: &str| {
            let (dtype, shape) = (&features[name]["dtype"], &features[name]["shape"]);
            format!("{} of {shape}", dtype.as_str().unwrap_or("nothing"))
        };
        for name in features
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            let (known, found) = (shape(known, name), shape(features, name));
            if known != found {
                return Err(LerobotError::Shape {
                    feature: name.clone(),
                    known,
                    found,
                });
            }
        }
        Ok(())
    }
}

fn json(path: &Path) -> Result<Value, LerobotError> {
    let text = std::fs::read(path).map_err(|error| unread(path, &error))?;
    serde_json::from_slice(&text).map_err(|error| unread(path, &error))
}

fn unread(path: &Path, error: &dyn std::fmt::Display) -> LerobotError {
    LerobotError::Other(format!(
        "cannot append to a dataset without a valid {}: {error}",
        path.display()
    ))
}

/// The tasks by their numbers: the texts of the only column of texts.
fn tasks(path: &Path) -> Result<Vec<String>, LerobotError> {
    let file = File::open(path).map_err(|error| unread(path, &error))?;
    let mut all = BTreeMap::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file)?.build()? {
        let batch = batch?;
        let is_text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8);
        let texts = batch.columns().iter();
        let texts = texts.into_iter().find(|column| is_text(column.data_type()));
        let numbers = batch.column_by_name("task_index");
        let numbers = numbers.and_then(|numbers| numbers.as_primitive_opt::<Int64Type>());
        let (Some(texts), Some(numbers)) = (texts, numbers) else {
            return Err(unread(path, &"it has no texts with numbers"));
        };
        for row in 0..batch.num_rows() {
            let text = match texts.data_type() {
                DataType::Utf8 => texts.as_string::<i32>().value(row),
                _ => texts.as_string::<i64>().value(row),
            };
            all.insert(numbers.value(row), text.to_owned());
        }
    }
    if !all.keys().copied().eq(0..all.len() as i64) {
        return Err(unread(path, &"its tasks are not numbered from zero"));
    }
    Ok(all.into_values().collect())
}

/// The number after that of the last file in `chunk-000/file-000.…`; what is numbered otherwise is none of the dataset's.
fn next_file(folder: &Path, extension: &str) -> usize {
    let number = |path: &Path, prefix: &str| -> Option<usize> {
        path.file_stem()?
            .to_str()?
            .strip_prefix(prefix)?
            .parse()
            .ok()
    };
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let mut next = 0;
    for chunk in entries(folder) {
        let Some(first) = number(&chunk, "chunk-") else {
            continue;
        };
        for file in entries(&chunk) {
            if file.extension().is_some_and(|end| end == extension)
                && let Some(file) = number(&file, "file-")
            {
                next = next.max(first * super::CHUNK_FILES + file + 1);
            }
        }
    }
    next
}

/// Moves the files of new episodes into their dataset. What says that they are there comes last, so that a dataset is complete
/// at every moment.
pub(super) fn join(new: &Path, folder: &Path) -> Result<(), LerobotError> {
    for part in [
        "data",
        "videos",
        "meta/stats.json",
        "meta/tasks.parquet",
        "meta/episodes",
    ] {
        merge(&new.join(part), &folder.join(part))?;
    }
    merge(&new.join("meta/info.json"), &folder.join("meta/info.json"))
}

fn merge(from: &Path, to: &Path) -> Result<(), LerobotError> {
    let wrong = |error: std::io::Error| failed(to, &error);
    if !from.is_dir() {
        return match std::fs::rename(from, to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !from.exists() => Ok(()),
            moved => moved.map_err(wrong),
        };
    }
    std::fs::create_dir_all(to).map_err(wrong)?;
    for entry in std::fs::read_dir(from).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        merge(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
