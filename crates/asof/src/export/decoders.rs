//! Decoded messages, and a report of what could not be decoded.

use std::sync::Arc;

use asof_core::{Channel, MessageRef};
use asof_decode::{DecodeError, Projection, SchemaError, Survey};

use crate::Progress;
use crate::rows::CellTexts;
use crate::text::counted;

/// The decoders of all channels met so far, and what they could not decode.
#[derive(Default)]
pub struct ReportingDecoders(asof_decode::Decoders);

impl ReportingDecoders {
    /// Decoders of these fields.
    pub fn new(projection: Projection) -> Self {
        ReportingDecoders(asof_decode::Decoders::new(projection).with_fixed_columns())
    }

    /// The same, with the types that a survey found for channels without a schema.
    #[must_use]
    pub fn with_survey(self, survey: Survey) -> Self {
        ReportingDecoders(self.0.with_survey(survey))
    }

    /// Writes a message's data as JSON. The error is the reason; nothing is written then.
    pub fn json(&mut self, message: MessageRef<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let written = self.0.write_json(message, out);
        written.map_err(|error| reason(&error))
    }

    /// Writes as JSON a message interpolated at `part` of the way from one to the next. Returns whether
    /// that is possible; nothing is written where it is not, or where one of them cannot be decoded.
    pub fn json_between(
        &mut self,
        before: MessageRef<'_>,
        after: MessageRef<'_>,
        part: f64,
        out: &mut Vec<u8>,
    ) -> bool {
        self.0.write_json_between(before, after, part, out)
    }

    /// The texts of a message's columns, as [`Decoder::cells`](asof_decode::Decoder::cells). The error is the reason.
    pub(crate) fn cells(&mut self, message: MessageRef<'_>) -> Result<CellTexts, String> {
        let mut texts = CellTexts::default();
        let decoded = self.0.cells(message, |text| texts.push(text));
        decoded.map_err(|error| reason(&error))?;
        Ok(texts)
    }

    /// The names of a channel's columns.
    pub fn cell_names(
        &mut self,
        channel: &Arc<Channel>,
        sample: &[u8],
    ) -> Result<Vec<String>, SchemaError> {
        let decoder = self.0.of(channel, &[sample])?;
        Ok(decoder.cell_names())
    }

    /// Reports what could not be decoded; returns whether there was any.
    pub fn tell(&self, progress: &Progress) -> bool {
        let mut all: Vec<_> = self.0.failures().collect();
        all.sort_by(|a, b| a.channel.topic.cmp(&b.channel.topic));
        let mut told = 0;
        for failures in all {
            told += failures.count;
            let what = counted(failures.count, "message");
            let topic = &failures.channel.topic;
            let (why, error) = match &failures.first {
                error @ DecodeError::Schema(_) => (":".to_owned(), error),
                error => (format!("; the first: at {},", failures.first_at), error),
            };
            let error = reason(error);
            progress.warning(format_args!("{what} on {topic} not decoded{why} {error}"));
        }
        let others = self.0.failed() - told;
        if others > 0 {
            let what = counted(others, "message");
            progress.warning(format_args!("{what} on other topics not decoded"));
        }
        self.0.failed() > 0
    }
}

/// Why something could not be decoded, with a way on where there is one.
fn reason(error: &DecodeError) -> String {
    match error {
        DecodeError::Schema(SchemaError::NoDefinition { .. }) => {
            format!("{error}; name a folder that has its .msg file: --msg-path DIR")
        }
        _ => error.to_string(),
    }
}

/// What to do about a channel whose type is named but not defined, as in ROS 2 bags before Iron.
pub fn missing_definition(channel: &Channel) -> Option<String> {
    let schema = channel.schema.as_ref()?;
    let is_missing = schema.encoding.is_empty() && schema.data.is_empty();
    let name = schema.name.clone();
    is_missing.then(|| reason(&SchemaError::NoDefinition { name }.into()))
}
