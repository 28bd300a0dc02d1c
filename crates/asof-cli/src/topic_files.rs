//! Files named after topics, and their folders.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::anyhow;

/// Creates a folder and its parents.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "a file is in its way".into(),
            _ => error.to_string(),
        };
        anyhow!("cannot make the folder {}: {reason}", folder.display())
    })
}

/// The names of the files that were started.
#[derive(Default)]
pub struct Names(HashSet<String>);

impl Names {
    /// The name of a topic's file, without its extension: slashes become dots, and characters that are not allowed in file
    /// names become underscores. Duplicates, such as a second table of a topic, get a number.
    pub fn of(&mut self, topic: &str) -> String {
        let mut name: String = topic
            .trim_start_matches('/')
            .chars()
            .map(|c| match c {
                '/' => '.',
                c if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') => c,
                _ => '_',
            })
            .collect();
        if name.is_empty() {
            "topic".clone_into(&mut name);
        }
        // A file name has room for 255 bytes, including a number and an extension.
        let end = name.floor_char_boundary(LONGEST_NAME);
        name.truncate(end);
        let mut numbers = 2..;
        let mut free = name.clone();
        // Some file systems ignore case.
        while !self.0.insert(free.to_lowercase()) {
            free = format!("{name}-{}", numbers.next().unwrap_or(u64::MAX));
        }
        free
    }
}

const LONGEST_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_file_name_of_its_own() {
        let mut names = Names::default();
        let topics = [
            "/a/b", "/a_b", "/a.b", "/a b", "/A/b", "a/b", "/", "/a.b-2", "/..",
        ];
        let found: Vec<String> = topics.iter().map(|topic| names.of(topic)).collect();
        let wanted = [
            "a.b", "a_b", "a.b-2", "a_b-2", "A.b-3", "a.b-4", "topic", "a.b-2-2", "..",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_long_topic_has_a_name_that_a_disk_can_hold() {
        let mut names = Names::default();
        let long = "/ä".repeat(400);
        for _ in 0..2 {
            assert!(names.of(&long).len() < 210);
        }
    }
}
