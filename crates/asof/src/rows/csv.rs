//! Comma-separated values: the line of names.

use std::collections::BTreeSet;

/// The names of all columns as a line: the times, then the message's own. A column of the message that has the name of an
/// earlier one gets an underscore, as in the other formats.
pub fn header(times: &[&str], own: &[String]) -> String {
    let mut names: Vec<String> = times.iter().map(|&time| time.to_owned()).collect();
    let mut known: BTreeSet<String> = names.iter().cloned().collect();
    for name in own {
        let mut name = name.clone();
        while !known.insert(name.clone()) {
            name.push('_');
        }
        names.push(name);
    }
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    names.join(",")
}

/// RFC 4180: quotes around fields that need them, and each quote inside doubled.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_name_of_its_own() {
        let own = ["log_time", "log_time_", "a,b", "x"].map(str::to_owned);
        assert_eq!(
            header(&["log_time", "publish_time"], &own),
            "log_time,publish_time,log_time_,log_time__,\"a,b\",x"
        );
    }
}
