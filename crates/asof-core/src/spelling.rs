//! Suggestions for mistyped names.

/// Names are compared up to this length.
const MAX_COMPARED_CHARS: usize = 64;

/// The known name nearest to `wanted`, if it is near enough to be a typo.
///
/// ```
/// use asof_core::spelling::nearest;
///
/// assert_eq!(nearest("/odmo", ["/odom", "/scan"]), Some("/odom"));
/// assert_eq!(nearest("/lidar", ["/odom", "/scan"]), None);
/// ```
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wanted.chars().count() / 3).max(1);
    let rated = known
        .into_iter()
        .map(|name| (distance(wanted, name), name))
        .filter(|(distance, _)| *distance <= most);
    rated.min().map(|(_, name)| name)
}

/// The edit distance of two names: letters changed, added, removed, or swapped with a neighbour. Case is ignored.
pub fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| -> String {
        let letters = text.chars().flat_map(char::to_lowercase);
        letters.take(MAX_COMPARED_CHARS).collect()
    };
    strsim::osa_distance(&lower(a), &lower(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_seen() {
        let topics = ["/odom", "/scan", "/camera/image", "/tf"];
        assert_eq!(nearest("/odmo", topics), Some("/odom"));
        assert_eq!(nearest("/scann", topics), Some("/scan"));
        assert_eq!(nearest("/Camera/imag", topics), Some("/camera/image"));
        assert_eq!(nearest("/lidar", topics), None);
        assert_eq!(nearest("cta", ["at", "cat", "tf"]), Some("cat"));
    }

    #[test]
    fn the_distance_counts_letters() {
        for (a, b, expected) in [
            ("", "abc", 3),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
            ("A", "a", 0),
        ] {
            assert_eq!(
                (distance(a, b), distance(b, a)),
                (expected, expected),
                "{a} {b}"
            );
        }
    }
}
