//! Problems as JSON.

use asof_core::Problem;
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct ProblemReport<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    message: &'a str,
}

/// Problems as objects of kind, offset, topic and message.
///
/// # Errors
/// When they cannot be written.
pub fn problems_as_json<S: Serializer>(
    problems: &[Problem],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(problems.iter().map(|problem| ProblemReport {
        kind: problem.kind.name(),
        offset: problem.offset,
        topic: problem.topic.as_deref(),
        message: &problem.message,
    }))
}
