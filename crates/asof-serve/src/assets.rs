//! Assets that a viewer fetches: meshes and textures of a robot's description.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::reply::{Failure, PART_BYTES, Reply};

/// The file of a URI, within the given folders.
///
/// `package://robot/meshes/arm.stl` is `robot/meshes/arm.stl` in one of the folders, or `meshes/arm.stl` in one that
/// is called `robot`; `file:///…` is that file, if it is in one of them. Links that lead out of a folder are not
/// followed.
pub(crate) fn find(folders: &[PathBuf], uri: &str) -> Result<PathBuf, String> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return Err("an asset needs a package:// or file:// URI".to_owned());
    };
    let rest = decoded(rest).ok_or("the URI is not UTF-8")?;
    let mut tried: Vec<PathBuf> = Vec::new();
    match scheme {
        "package" => {
            let path = Path::new(&rest);
            if !path
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
            {
                return Err("the URI leads out of its package".to_owned());
            }
            let package = path.components().next();
            for folder in folders {
                tried.push(folder.join(path));
                let own = folder.components().next_back();
                if let Some(package) = package.filter(|package| Some(*package) == own)
                    && let Ok(inside) = path.strip_prefix(package)
                {
                    tried.push(folder.join(inside));
                }
            }
        }
        "file" => tried.push(PathBuf::from(rest)),
        _ => {
            return Err(format!(
                "{scheme}:// is not supported; use package:// or file://"
            ));
        }
    }
    let is_inside = |path: &PathBuf| {
        let within = |folder: &PathBuf| {
            let folder = folder.canonicalize();
            folder.is_ok_and(|folder| path.starts_with(folder))
        };
        path.is_file() && folders.iter().any(within)
    };
    tried
        .into_iter()
        .filter_map(|path| path.canonicalize().ok())
        .find(is_inside)
        .ok_or_else(|| "there is no such file in the folders that --package names".to_owned())
}

/// The file of a URI, and its size; an error if it has more than `most` bytes.
pub(crate) fn sized(
    folders: &[PathBuf],
    uri: &str,
    most: usize,
) -> Result<(PathBuf, usize), String> {
    let path = find(folders, uri)?;
    let size = std::fs::metadata(&path).map_err(|error| error.to_string())?;
    let size = usize::try_from(size.len()).unwrap_or(usize::MAX);
    if size > most {
        return Err(format!(
            "the file has {size} bytes, more than the limit of {most}"
        ));
    }
    Ok((path, size))
}

/// Sends the file of a URI. The error names it.
pub(crate) fn send(
    folders: &[PathBuf],
    uri: &str,
    most: usize,
    reply: &mut Reply,
) -> Result<(), Failure> {
    let shown: String = uri.chars().take(200).collect();
    let wrong = |error: String| Failure::Wrong(format!("{shown}: {error}"));
    let (path, size) = sized(folders, uri, most).map_err(wrong)?;
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    // It may have grown since.
    let mut file = file.take(size as u64);
    let mut part = vec![0; PART_BYTES];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(bytes) => reply.write(&part[..bytes])?,
            Err(error) => return Err(wrong(error.to_string())),
        }
    }
}

/// Decodes percent escapes.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `outside/secret`, and a folder `robot` with `meshes/arm one.stl`, a link out of it, and one within.
    fn folders() -> (PathBuf, PathBuf) {
        let name = format!("asof-assets-{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        let robot = base.join("robot");
        std::fs::create_dir_all(robot.join("meshes")).expect("made");
        std::fs::create_dir_all(base.join("outside")).expect("made");
        std::fs::write(robot.join("meshes/arm one.stl"), "solid").expect("written");
        std::fs::write(base.join("outside/secret"), "secret").expect("written");
        #[cfg(unix)]
        for (to, from) in [
            (base.join("outside/secret"), robot.join("out")),
            (robot.join("meshes/arm one.stl"), robot.join("in")),
        ] {
            drop(std::os::unix::fs::symlink(to, from));
        }
        (base, robot)
    }

    #[test]
    fn files_are_found_within_the_folders_that_were_named_and_nowhere_else() {
        let (base, robot) = folders();
        let arm = robot
            .join("meshes/arm one.stl")
            .canonicalize()
            .expect("there");
        let named = [robot.clone()];
        let found = |uri: &str| find(&named, uri).ok();
        assert_eq!(
            found("package://robot/meshes/arm%20one.stl"),
            Some(arm.clone())
        );
        assert_eq!(
            found("package://robot/meshes/arm one.stl"),
            Some(arm.clone())
        );
        assert_eq!(
            found(&format!("file://{}", arm.display())),
            Some(arm.clone())
        );
        #[cfg(unix)]
        assert_eq!(found("package://robot/in"), Some(arm.clone()));
        let all = [base.join("none"), base.clone()];
        assert_eq!(find(&all, "package://robot/meshes/arm%20one.stl"), Ok(arm));
        let secret = base.join("outside/secret");
        for uri in [
            "package://robot/../outside/secret",
            "package://robot/%2e%2e/outside/secret",
            "package://outside/secret",
            "package://robot/out",
            "package://robot/meshes",
            "package://robot/",
            "package://",
            "package:///etc/passwd",
            "package://robot/meshes/arm%zz",
            "package://robot/meshes/arm%20one.stl%00",
            "https://host.example/arm.stl",
            "arm.stl",
            "",
            &format!("file://{}", secret.display()),
            &format!("file://{}/../outside/secret", robot.display()),
        ] {
            assert!(find(&named, uri).is_err(), "{uri}");
        }
        assert!(find(&[], "package://robot/meshes/arm%20one.stl").is_err());
        drop(std::fs::remove_dir_all(base));
    }
}
