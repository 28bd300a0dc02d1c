//! The layers that a verb uses, by their names.

use asof::decode::Layers;
use clap::Args;

use super::failure::Usage;

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
