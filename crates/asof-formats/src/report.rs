//! A summary that collects problems.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_core::{Problem, Summary};

use crate::problems::Problems;

/// The summary of a recording, to which problems are added as they are found.
pub(crate) struct Report {
    inner: Mutex<Inner>,
}

struct Inner {
    summary: Arc<Summary>,
    problems: Problems,
    /// Whether the summary lacks some of the problems. They are added on request: a damaged file may have very many.
    is_stale: bool,
}

impl Report {
    pub fn new(problems: Problems) -> Self {
        Report {
            inner: Mutex::new(Inner {
                summary: Arc::new(Summary::empty("")),
                problems,
                is_stale: false,
            }),
        }
    }

    /// A snapshot, shared.
    pub fn summary(&self) -> Arc<Summary> {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.is_stale) {
            let problems = inner.problems.to_vec();
            Arc::make_mut(&mut inner.summary).problems = problems;
        }
        Arc::clone(&inner.summary)
    }

    /// Replaces everything but the problems.
    pub fn set_summary(&self, summary: Summary) {
        let mut inner = self.lock();
        inner.summary = Arc::new(summary);
        inner.is_stale = true;
    }

    /// Records a problem.
    pub fn add(&self, place: &str, problem: Problem) {
        let mut inner = self.lock();
        tracing::debug!(place, %problem, "problem");
        if inner.problems.push(problem) {
            inner.is_stale = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
