//! The layers that a verb uses, by their names.

use std::io::Write as _;

use asof::Source;
use asof::decode::Layers;
use asof::text::{counted, shown};
use clap::Args;

use super::failure::Usage;
use super::screen::output;

/// The flags that choose among the layers.
#[derive(Debug, Args)]
pub struct LayerChoice {
    /// Use only this layer: semantic, reflection, raw; or of the file: recording, channels, statistics, metadata,
    /// attachments
    #[arg(long, value_name = "NAME", conflicts_with = "without")]
    only: Option<String>,

    /// Without these layers, separated by commas
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    without: Vec<String>,
}

impl LayerChoice {
    /// Whether one layer was requested, and all others are off.
    pub fn is_one_alone(&self) -> bool {
        self.only.is_some()
    }

    /// The chosen ones of these layers.
    pub fn of(&self, layers: Layers) -> anyhow::Result<Layers> {
        for name in self.only.iter().chain(&self.without) {
            let known = [layers.names(), layers.file_names()].concat();
            if !known.contains(&name.as_str()) {
                return Err(Usage::error(format!(
                    "there is no layer '{name}'; there are {}",
                    known.join(", ")
                )));
            }
        }
        let layers = match &self.only {
            Some(name) => layers.only(name),
            None => layers,
        };
        Ok(self
            .without
            .iter()
            .fold(layers, |layers, name| layers.without(name)))
    }
}

/// One line for each topic: the layer that takes it, and why; the layers that declined before, and why.
pub fn show(file: &dyn Source, json: bool) -> anyhow::Result<()> {
    let layers = Layers::standard();
    let mut out = output();
    for assignment in layers.plan(&file.summary()) {
        let topic = &assignment.channel.topic;
        let layer = assignment.layer.as_deref().unwrap_or("none");
        if json {
            let declined: Vec<_> = assignment
                .declined
                .iter()
                .map(|(layer, reason)| serde_json::json!({"layer": &**layer, "reason": reason}))
                .collect();
            let line = serde_json::json!({
                "topic": topic, "type": assignment.channel.type_name(), "layer": layer,
                "reason": assignment.reason, "declined": declined,
            });
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(
            out,
            "{}  {layer}: {}",
            shown(topic),
            shown(&assignment.reason)
        )?;
        for (layer, reason) in &assignment.declined {
            writeln!(out, "    not {layer}: {}", shown(reason))?;
        }
    }
    // Contents are not read: attachments can be large.
    let mut tables: Vec<(&str, u64)> = Vec::new();
    for batch in layers.file_tables(file, None) {
        let (layer, batch) = batch?;
        let rows = batch.num_rows() as u64;
        match tables.last_mut() {
            Some((last, count)) if *last == layer => *count += rows,
            _ => tables.push((layer, rows)),
        }
    }
    for (layer, rows) in tables {
        let reason = counted(rows, "row");
        if json {
            let line = serde_json::json!({
                "topic": null, "type": null, "layer": layer, "reason": reason, "declined": [],
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "(the file)  {layer}: {reason}")?;
        }
    }
    Ok(out.flush()?)
}
