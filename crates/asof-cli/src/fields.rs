//! `--fields`: selects fields, and the topics that have them.

use asof::decode::Projection;
use asof::export::narrow;
use asof::{Growth, Query, Source};
use clap::Args;

use super::completions;
use super::screen::Screen;

/// The fields of printed messages.
#[derive(Debug, Args)]
pub struct FieldChoice {
    /// Only these fields, separated by commas: pose.pose.position,twist
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        conflicts_with = "raw",
        add = completions::fields()
    )]
    fields: Vec<String>,
}

impl FieldChoice {
    /// Excludes the topics of a recording that have none of the fields, with a note. A robot's future topics are unknown.
    pub fn narrow(
        &self,
        query: &mut Query,
        recording: &dyn Source,
        screen: &Screen,
    ) -> anyhow::Result<()> {
        if self.fields.is_empty() || recording.growth() != Growth::Finished {
            return Ok(());
        }
        Ok(narrow(
            query,
            &self.fields,
            &recording.summary(),
            &screen.reports(""),
        )?)
    }

    /// The requested fields. Each topic shows those that it has.
    pub fn projection(&self) -> Projection {
        if self.fields.is_empty() {
            Projection::All
        } else {
            Projection::any_of(&self.fields)
        }
    }
}
