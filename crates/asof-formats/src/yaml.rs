//! YAML from outside, such as the description of a ROS 2 bag.

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

/// The deepest nesting: no bag's description is deeper, and its loader is recursive.
const MAX_DEPTH: usize = 64;
/// The most values: far more than a bag of thousands of topics has. A few aliases of aliases can stand for more than
/// fits into memory.
const MOST_VALUES: u64 = 1 << 20;

/// The first document of a text; `None` if there is none, or it is not a reasonable description.
pub(crate) fn first_document(text: &str) -> Option<Yaml> {
    if !is_reasonable(text)? {
        return None;
    }
    YamlLoader::load_from_str(text).ok()?.into_iter().next()
}

/// Whether loading a text takes memory in proportion to it; `None` if it is not YAML.
fn is_reasonable(text: &str) -> Option<bool> {
    let mut parser = Parser::new_from_str(text);
    // The number of values that each anchor stands for, by its id.
    let mut anchors: Vec<u64> = Vec::new();
    // The open values, with their anchors, and the number of values in them so far.
    let mut open: Vec<(usize, u64)> = Vec::new();
    let mut all = 0u64;
    loop {
        let (anchor, values) = match parser.next_token().ok()?.0 {
            Event::StreamEnd => return Some(true),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, 1));
                if open.len() > MAX_DEPTH {
                    return Some(false);
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop()?,
            Event::Scalar(_, _, anchor, _) => (anchor, 1),
            Event::Alias(anchor) => (0, anchors.get(anchor).copied().unwrap_or(1)),
            _ => continue,
        };
        if anchor >= anchors.len() {
            anchors.resize(anchor + 1, 1);
        }
        anchors[anchor] = values;
        let around = open.last_mut().map_or(&mut all, |(_, around)| around);
        *around = around.saturating_add(values);
        if *around > MOST_VALUES {
            return Some(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_stand_for_what_they_name() {
        let found =
            first_document("a: &list [1, 2]\nb: *list\nc: &word x\nd: *word").expect("YAML");
        assert_eq!(found["b"].as_vec().map(Vec::len), Some(2));
        assert_eq!(found["d"].as_str(), Some("x"));
    }

    #[test]
    fn a_few_lines_that_stand_for_all_memory_are_refused() {
        let levels = (1..12).map(|level| {
            let below = format!("*a{}, ", level - 1).repeat(10);
            format!("a{level}: &a{level} [{below}]\n")
        });
        let text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned()
            + &levels.collect::<Vec<_>>().concat();
        assert_eq!(is_reasonable(&text), Some(false));
        assert!(first_document(&text).is_none());
    }

    #[test]
    fn what_is_nested_without_end_is_refused() {
        for text in [
            "- ".repeat(200_000) + "x",
            "[".repeat(10_000) + &"]".repeat(10_000),
            "{a: ".repeat(200) + "1" + &"}".repeat(200),
        ] {
            assert!(first_document(&text).is_none());
        }
        let usual = "- ".repeat(MAX_DEPTH) + "x";
        assert!(first_document(&usual).is_some());
    }

    #[test]
    fn other_texts_are_no_documents() {
        for text in ["", "a: [", "a: *nobody"] {
            assert!(first_document(text).is_none(), "{text}");
        }
    }
}
