//! Rerun, in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use asof_core::{Query, Topics};

pub struct Rerun {
    python: Option<PathBuf>,
}

impl Rerun {
    /// Installs the peer if it is missing; prints a message if that fails.
    pub fn prepare() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("target/rerun-venv/bin/python");
        if !python.exists() {
            let done = Command::new(root.join("peers/rerun")).status();
            if !done.is_ok_and(|status| status.success()) {
                eprintln!("rerun-sdk could not be installed; its cases have no such peer");
                return Rerun { python: None };
            }
        }
        Rerun {
            python: Some(python),
        }
    }

    pub fn is_there(&self) -> bool {
        self.python.is_some()
    }

    /// CPU seconds of `McapReader` for a query, as it measures itself.
    pub fn decode(&self, path: &Path, query: &Query) -> f64 {
        let topics = match &query.topics {
            Topics::All => String::new(),
            Topics::Named(names) => names
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(","),
        };
        self.measure(&["decode", &path.display().to_string(), &topics])
    }

    /// CPU seconds of `rerun mcap convert`.
    pub fn convert(&self, path: &Path) -> f64 {
        self.measure(&["convert", &path.display().to_string()])
    }

    /// CPU seconds of loading a recording, and of its dataframe reader for what these topics have at the times of the first.
    #[cfg(feature = "sql")]
    pub fn query(&self, path: &Path, topics: &[&str]) -> f64 {
        self.measure(&["query", &path.display().to_string(), &topics.join(",")])
    }

    fn measure(&self, arguments: &[&str]) -> f64 {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/rerun_peer.py");
        let python = self.python.as_ref().expect("is there");
        let output = Command::new(python)
            .arg(script)
            .args(arguments)
            .output()
            .expect("python runs");
        let text = String::from_utf8_lossy(&output.stdout);
        match text
            .trim()
            .lines()
            .last()
            .and_then(|line| line.parse().ok())
        {
            Some(seconds) => seconds,
            None => panic!("rerun: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
