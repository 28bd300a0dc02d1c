//! What a build says when it is asked for something that it was compiled without.

/// Which packages have what this build has not, and the line that builds it.
pub fn absent(what: &str, feature: &str) -> String {
    format!(
        "this build has no {what}; the ready-made packages do: the archive, the Debian package and the wheel `asof`. \
         To build it: cargo install --path crates/asof-cli --features {feature}"
    )
}
