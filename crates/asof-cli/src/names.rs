//! Suggestions for mistyped topics.

use asof_core::spelling::nearest;

/// `did you mean '/odom'?`, for topics; finds a missing slash, too.
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    let slashed = format!("/{wanted}");
    let is_slashed = known.clone().into_iter().any(|name| name == slashed);
    let meant = if is_slashed {
        Some(slashed.as_str())
    } else {
        nearest(wanted, known)
    };
    meant.map(|name| format!("did you mean '{name}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_that_was_left_out_is_seen() {
        let topics = ["/odom", "/scan"];
        assert_eq!(
            hint("odom", topics).as_deref(),
            Some("did you mean '/odom'?")
        );
    }
}
