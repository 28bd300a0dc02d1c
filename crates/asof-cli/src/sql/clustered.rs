//! `asof sql --cluster`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use asof::cluster::ClusterClient;
use asof::formats::{REMOTE_SCHEMES, without_secrets};
use asof::sql::{Database, RecordingAddress, SqlOptions};

use super::running::NamedRecording;
use crate::cluster::ClusterToken;
use crate::failure::Usage;
use crate::place::Opening;

/// The recordings as a database that a cluster reads.
pub fn database(
    scheduler: &str,
    token: &ClusterToken,
    recordings: &[NamedRecording],
    opening: &Opening,
    options: SqlOptions,
) -> anyhow::Result<Database> {
    if opening.is_special() {
        return Err(Usage::error(
            "--msg-path and --no-limits do not reach the executors of a cluster; leave them out, or leave --cluster out",
        ));
    }
    let cluster = ClusterClient::connect(scheduler, token.read()?)?;
    let addressed = |placed: &NamedRecording| {
        let address = address_of(&placed.place)?;
        let summary = placed.recording.summary();
        let is_growing = placed.recording.growth().is_growing();
        let address = RecordingAddress {
            name: placed.name.clone(),
            address,
            size: (!is_growing).then_some(summary.size),
            version: None,
        };
        Ok((address, Arc::clone(&placed.recording)))
    };
    let recordings = recordings
        .iter()
        .map(addressed)
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Database::on_cluster(
        recordings,
        options,
        Arc::new(cluster),
    )?)
}

/// The path or address of a place, the same on all machines.
fn address_of(place: &Path) -> anyhow::Result<String> {
    let text = place.display().to_string();
    let Some((scheme, _)) = text.split_once("://") else {
        let path = std::fs::canonicalize(place);
        let path = path.with_context(|| format!("cannot find {text}"))?;
        return match path.to_str() {
            Some(path) => Ok(path.to_owned()),
            None => Err(anyhow!(
                "the name of {text} is not UTF-8, which no plan can hold"
            )),
        };
    };
    if !REMOTE_SCHEMES.contains(&scheme) {
        return Err(Usage::error(format!(
            "a cluster reads recordings, and {} is not one",
            without_secrets(&text)
        )));
    }
    if without_secrets(&text) != text {
        return Err(Usage::error(format!(
            "the address of {} contains a secret, which would be in every plan; give executors the credentials instead",
            without_secrets(&text)
        )));
    }
    Ok(text)
}
