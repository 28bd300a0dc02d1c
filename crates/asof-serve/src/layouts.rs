//! Layouts of the page that a team shares: files in a folder, one for each name.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::reply::{Failure, Reply, answered, json_of, wrong};
use crate::waiting::Connection;

/// The largest layout, and the most of them.
const MOST_BYTES: usize = 1 << 20;
const MOST_LAYOUTS: usize = 500;
/// JSON takes about this many times its bytes while it is read.
const BYTES_PARSED: usize = 12;

/// The layouts in the folder: `{"name": tree, …}`. A file that is not a layout is left out.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
) -> Response {
    let Some(folder) = app.layouts.clone() else {
        return json_of(&json!({}));
    };
    answered(&app, &connection, move |_, reply| all_in(&folder, reply)).await
}

#[derive(Deserialize)]
pub(crate) struct Named {
    name: String,
}

/// Keeps a layout under a name, instead of another of that name; responds with all of them.
pub(crate) async fn keep(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(asked): Query<Named>,
    request: Request,
) -> Response {
    let body = to_bytes(request.into_body(), MOST_BYTES);
    let Ok(received) = tokio::time::timeout(app.limits.upload_timeout, body).await else {
        return wrong("the layout was not received in time");
    };
    let Ok(bytes) = received else {
        return wrong(format!("a layout has at most {MOST_BYTES} bytes"));
    };
    let name = asked.name.clone();
    changed(&app, &connection, &asked.name, move |folder, path| {
        let tree: Value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("the layout is not JSON: {error}"))?;
        if !tree.is_object() {
            return Err("this is JSON, but not a layout".to_owned());
        }
        if !path.exists() && files_in(folder).count() >= MOST_LAYOUTS {
            return Err(format!("at most {MOST_LAYOUTS} layouts are kept"));
        }
        let content = json!({ "asof_layout": 1, "name": name, "tree": tree });
        let cannot = |error: std::io::Error| format!("the layout cannot be saved: {error}");
        std::fs::create_dir_all(folder).map_err(cannot)?;
        // Whoever reads meanwhile has the old one or the new one.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
        file.write_all(content.to_string().as_bytes())
            .map_err(cannot)?;
        file.persist(path).map_err(|error| cannot(error.error))?;
        Ok(())
    })
    .await
}

/// Removes a layout; responds with the rest.
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(asked): Query<Named>,
) -> Response {
    changed(&app, &connection, &asked.name, |_, path| {
        std::fs::remove_file(path).map_err(|error| format!("the layout cannot be removed: {error}"))
    })
    .await
}

async fn changed(
    app: &Arc<App>,
    connection: &Arc<Connection>,
    name: &str,
    change: impl FnOnce(&Path, &Path) -> Result<(), String> + Send + 'static,
) -> Response {
    let Some(folder) = app.layouts.clone() else {
        return wrong("this server keeps no layouts; start it with --layouts");
    };
    let Some(path) = file_of(&folder, name) else {
        return wrong(
            "a layout needs a name of up to 80 characters, without / and \\, that does not start with a dot",
        );
    };
    answered(app, connection, move |_, reply| {
        change(&folder, &path)?;
        all_in(&folder, reply)
    })
    .await
}

/// The file of a layout; `None` for a name that leads elsewhere.
fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':');
    let is_name = !name.is_empty() && name.trim() == name && !name.starts_with('.');
    let fits = name.chars().count() <= 80 && name.chars().all(is_plain);
    (is_name && fits).then(|| folder.join(format!("{name}.json")))
}

/// The files of a folder that may be layouts, with their sizes.
fn files_in(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(2 * MOST_LAYOUTS).filter_map(|entry| {
        let (path, file) = (entry.path(), entry.metadata().ok()?);
        let is_layout = path.extension().is_some_and(|end| end == "json");
        let fits = file.is_file() && file.len() <= 2 * MOST_BYTES as u64;
        (is_layout && fits).then_some((path, file.len()))
    })
}

/// Sends all layouts of a folder, one after the other.
fn all_in(folder: &Path, reply: &mut Reply) -> Result<(), Failure> {
    let mut before = "{";
    for (path, bytes) in files_in(folder) {
        // As text, and as a tree.
        let _room = reply.room(BYTES_PARSED * bytes as usize)?;
        let text = std::fs::read(&path).unwrap_or_default();
        let content = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        if let (Some(tree @ Value::Object(_)), Some(name)) = (content.get("tree"), path.file_stem())
        {
            reply.write(std::mem::replace(&mut before, ",").as_bytes())?;
            reply.json(&name.to_string_lossy())?;
            reply.write(b":")?;
            reply.json(tree)?;
        }
    }
    reply.write(if before == "{" { b"{}" } else { b"}" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_folder() {
        let folder = Path::new("/layouts");
        let path = file_of(folder, "drive & arm");
        assert_eq!(
            path.as_deref(),
            Some(Path::new("/layouts/drive & arm.json"))
        );
        for name in [
            "",
            " ",
            "..",
            ".x",
            "a/b",
            "a\\b",
            "c:x",
            "a\nb",
            &"x".repeat(81),
        ] {
            assert_eq!(file_of(folder, name), None, "{name:?}");
        }
    }
}
