//! A summary, with what has been found wrong so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_core::{Problem, Summary};

use crate::problems::Problems;

/// The summary of a recording, to which problems are added as reading meets them.
pub(crate) struct Report {
    inner: Mutex<Inner>,
}

struct Inner {
    summary: Arc<Summary>,
    problems: Problems,
}

impl Report {
    pub fn new(problems: Problems) -> Self {
        Report {
            inner: Mutex::new(Inner {
                summary: Arc::new(Summary::empty("")),
                problems,
            }),
        }
    }

    /// A snapshot, shared.
    pub fn summary(&self) -> Arc<Summary> {
        Arc::clone(&self.lock().summary)
    }

    /// Replaces everything but the problems.
    pub fn set_summary(&self, mut summary: Summary) {
        let mut inner = self.lock();
        summary.problems = inner.problems.to_vec();
        inner.summary = Arc::new(summary);
    }

    /// Takes note of something wrong.
    pub fn add(&self, place: &str, problem: Problem) {
        let mut inner = self.lock();
        tracing::debug!(place, %problem, "problem");
        if inner.problems.push(problem) {
            let problems = inner.problems.to_vec();
            Arc::make_mut(&mut inner.summary).problems = problems;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
