//! Layouts of the page that a team shares: files in a folder, one for each name.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::changes::{json_of, wrong};

/// The largest layout, and the most of them.
const MOST_BYTES: usize = 1 << 20;
const MOST_LAYOUTS: usize = 500;

/// The layouts in the folder: `{"name": tree, …}`. A file that is not a layout is left out.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let Some(folder) = app.layouts.clone() else {
        return json_of(&json!({}));
    };
    match tokio::task::spawn_blocking(move || all_in(&folder)).await {
        Ok(found) => json_of(&Value::Object(found)),
        Err(error) => wrong(&format!("the layouts cannot be read: {error}")),
    }
}

#[derive(Deserialize)]
pub(crate) struct Named {
    name: String,
}

/// Keeps a layout under a name, instead of another of that name; responds with all of them.
pub(crate) async fn keep(
    State(app): State<Arc<App>>,
    Query(asked): Query<Named>,
    request: Request,
) -> Response {
    let Ok(bytes) = to_bytes(request.into_body(), MOST_BYTES).await else {
        return wrong(&format!("a layout has at most {MOST_BYTES} bytes"));
    };
    let name = asked.name.clone();
    changed(&app, &asked.name, move |folder, path| {
        let tree: Value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("the layout is not JSON: {error}"))?;
        if !tree.is_object() {
            return Err("this is JSON, but not a layout".to_owned());
        }
        if !path.exists() && all_in(folder).len() >= MOST_LAYOUTS {
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
pub(crate) async fn remove(State(app): State<Arc<App>>, Query(asked): Query<Named>) -> Response {
    changed(&app, &asked.name, |_, path| {
        std::fs::remove_file(path).map_err(|error| format!("the layout cannot be removed: {error}"))
    })
    .await
}

async fn changed(
    app: &App,
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
    let work = move || change(&folder, &path).map(|()| all_in(&folder));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(found)) => json_of(&Value::Object(found)),
        Ok(Err(error)) => wrong(&error),
        Err(error) => wrong(&format!("the layout cannot be changed: {error}")),
    }
}

/// The file of a layout; `None` for a name that leads elsewhere.
fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':');
    let is_name = !name.is_empty() && name.trim() == name && !name.starts_with('.');
    let fits = name.chars().count() <= 80 && name.chars().all(is_plain);
    (is_name && fits).then(|| folder.join(format!("{name}.json")))
}

fn all_in(folder: &Path) -> Map<String, Value> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Map::new();
    for entry in entries.take(2 * MOST_LAYOUTS) {
        let path = entry.path();
        let is_layout = path.extension().is_some_and(|end| end == "json");
        let is_small = entry
            .metadata()
            .is_ok_and(|file| file.is_file() && file.len() <= 2 * MOST_BYTES as u64);
        let (true, true, Some(name)) = (is_layout, is_small, path.file_stem()) else {
            continue;
        };
        let text = std::fs::read(&path).unwrap_or_default();
        let content = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        if let Some(tree @ Value::Object(_)) = content.get("tree") {
            found.insert(name.to_string_lossy().into_owned(), tree.clone());
        }
    }
    found
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
