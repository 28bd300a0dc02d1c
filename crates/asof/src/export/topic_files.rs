//! Files named after topics, and their folders.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::ErrorKind;
use std::path::Path;

use crate::Error;

/// Creates a folder and its parents.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "a file is in its way".into(),
            _ => error.to_string(),
        };
        Error::Invalid(format!(
            "cannot make the folder {}: {reason}",
            folder.display()
        ))
    })
}

/// The names of the files that were started, without case, each with the next number to try for another of this name.
#[derive(Default)]
pub struct Names(HashMap<String, u64>);

impl Names {
    /// The name of a topic's file or folder, without its extension: slashes become dots, and characters that are not allowed
    /// in file names become underscores, as do dots at its front and end: no topic names another folder, or a hidden file.
    /// Duplicates, such as a second table of a topic, get a number.
    pub fn of(&mut self, topic: &str) -> String {
        let topic = topic.trim_start_matches('/');
        let outer = topic.trim_matches(['.', '/']);
        let start = topic.len() - topic.trim_start_matches(['.', '/']).len();
        let inner = start..start + outer.len();
        let mut name: String = topic
            .char_indices()
            .map(|(at, c)| match c {
                '.' | '/' if !inner.contains(&at) => '_',
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
        // Some file systems ignore case, and some letters have no lower case but through the upper one.
        let without_case = |name: &str| name.to_uppercase().to_lowercase();
        let key = without_case(&name);
        let Some(&first) = self.0.get(&key) else {
            self.0.insert(key, 2);
            return name;
        };
        let mut number = first;
        let free = loop {
            let free = format!("{name}-{number}");
            number += 1;
            let free_key = without_case(&free);
            if let Entry::Vacant(vacant) = self.0.entry(free_key) {
                vacant.insert(2);
                break free;
            }
        };
        self.0.insert(key, number);
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
            "/a/b",
            "/a_b",
            "/a.b",
            "/a b",
            "/A/b",
            "a/b",
            "/",
            "/a.b-2",
            "/stra\u{df}e",
            "/STRASSE",
        ];
        let found: Vec<String> = topics.iter().map(|topic| names.of(topic)).collect();
        let wanted = [
            "a.b",
            "a_b",
            "a.b-2",
            "a_b-2",
            "A.b-3",
            "a.b-4",
            "topic",
            "a.b-2-2",
            "stra\u{df}e",
            "STRASSE-2",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn no_topic_names_another_folder_or_a_hidden_file() {
        let mut names = Names::default();
        let topics = [
            "..", ".", "/..", "/../x", "../../x", ".x", "x/..", "x.", "a/../b", "...", "\\..\\x",
            "\0", "c:x",
        ];
        let found: Vec<String> = topics.iter().map(|topic| names.of(topic)).collect();
        for name in &found {
            assert!(!name.starts_with('.') && !name.ends_with('.'), "{name}");
            assert!(!name.contains(['/', '\\', '\0', ':']), "{name}");
            let parts = Path::new(name).components().count();
            assert_eq!(parts, 1, "{name}");
        }
        let wanted = [
            "__", "_", "__-2", "___x", "______x", "_x", "x___", "x_", "a....b", "___", "_.._x",
            "_-2", "c_x",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn many_tables_of_one_name_are_numbered_in_one_pass() {
        let mut names = Names::default();
        let last = (0..60_000).map(|_| names.of("/same")).last();
        assert_eq!(last.as_deref(), Some("same-60000"));
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
