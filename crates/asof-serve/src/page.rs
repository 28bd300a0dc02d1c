//! The page, as built from `web/`; `ci/page/web` checks that it is up to date.

/// A file of the page.
pub(crate) struct PageFile {
    pub media_type: &'static str,
    pub bytes: &'static [u8],
}

/// The file at a path. There are no others: no path reaches the file system.
pub(crate) fn file(path: &str) -> Option<PageFile> {
    let (media_type, bytes): (_, &[u8]) = match path {
        "/" => (
            "text/html; charset=utf-8",
            include_bytes!("../page/index.html"),
        ),
        "/app.js" => (
            "text/javascript; charset=utf-8",
            include_bytes!("../page/app.js"),
        ),
        "/app.css" => ("text/css; charset=utf-8", include_bytes!("../page/app.css")),
        "/scene.js" => (
            "text/javascript; charset=utf-8",
            include_bytes!("../page/scene.js"),
        ),
        "/meshes.js" => (
            "text/javascript; charset=utf-8",
            include_bytes!("../page/meshes.js"),
        ),
        _ => return None,
    };
    Some(PageFile { media_type, bytes })
}
