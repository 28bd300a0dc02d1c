//! A message over several lines, as people read it.

/// How many numbers of a list are shown in its line.
const NUMBERS_PER_LINE: usize = 12;

/// Writes JSON as indented lines, `name: value`, the fields in their order. Anything that is not JSON is unchanged.
pub fn write_pretty(json: &[u8], depth: usize, out: &mut Vec<u8>) {
    let mut text = Reader { json, at: 0 };
    if text.value(depth, out).is_none() {
        out.extend_from_slice(json);
    }
}

struct Reader<'a> {
    json: &'a [u8],
    at: usize,
}

/// The deepest indentation.
const MAX_INDENT: usize = 64;

impl<'a> Reader<'a> {
    /// A value and the end of its line; its contents go on lines of their own.
    fn value(&mut self, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        match self.peek()? {
            b'{' if depth < MAX_INDENT => self.object(depth, out),
            b'[' if depth < MAX_INDENT => self.list(depth, out),
            _ => {
                let scalar = self.skip()?;
                out.push(b' ');
                out.extend_from_slice(scalar);
                out.push(b'\n');
                Some(())
            }
        }
    }

    fn object(&mut self, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            out.extend_from_slice(b" {}\n");
            return Some(());
        }
        out.push(b'\n');
        loop {
            let name = self.skip()?;
            indent(depth, out);
            out.extend_from_slice(name.strip_prefix(b"\"")?.strip_suffix(b"\"")?);
            out.push(b':');
            self.take(b':')?;
            self.value(depth + 1, out)?;
            if !self.goes_on(b'}')? {
                return Some(());
            }
        }
    }

    fn list(&mut self, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        let start = self.at;
        self.at += 1;
        let is_flat = !matches!(self.peek()?, b'{' | b'[');
        if !is_flat {
            out.push(b'\n');
            loop {
                indent(depth, out);
                out.push(b'-');
                self.value(depth + 1, out)?;
                if !self.goes_on(b']')? {
                    return Some(());
                }
            }
        }
        self.at = start;
        let all = self.skip()?;
        let inner = all.strip_prefix(b"[")?.strip_suffix(b"]")?;
        let count = if inner.is_empty() {
            0
        } else {
            commas(inner) + 1
        };
        if count <= NUMBERS_PER_LINE {
            out.push(b' ');
            out.extend_from_slice(all);
        } else {
            let end = nth_comma(inner, NUMBERS_PER_LINE);
            out.extend_from_slice(b" [");
            out.extend_from_slice(&inner[..end]);
            out.extend_from_slice(format!(", … ({} more)]", count - NUMBERS_PER_LINE).as_bytes());
        }
        out.push(b'\n');
        Some(())
    }

    /// Whether another element follows; otherwise the end has been consumed.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        let next = self.peek()?;
        self.at += 1;
        match next {
            b',' => Some(true),
            next if next == end => Some(false),
            _ => None,
        }
    }

    fn peek(&mut self) -> Option<u8> {
        while self.json.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.json.get(self.at).copied()
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// One value, unparsed.
    fn skip(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        let (mut depth, mut in_text) = (0_usize, false);
        while let Some(&byte) = self.json.get(self.at) {
            match byte {
                b'\\' if in_text => self.at += 1,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' | b',' | b':' if depth == 0 => break,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        let found = self.json.get(start..self.at)?;
        (!found.is_empty()).then_some(found)
    }
}

fn indent(depth: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * depth, b' ');
}

/// The positions of commas outside of strings.
fn comma_places(list: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let (mut in_text, mut is_escaped) = (false, false);
    list.iter().enumerate().filter_map(move |(at, &byte)| {
        let is_comma = byte == b',' && !in_text;
        if byte == b'"' && !is_escaped {
            in_text = !in_text;
        }
        is_escaped = byte == b'\\' && !is_escaped;
        is_comma.then_some(at)
    })
}

fn commas(list: &[u8]) -> usize {
    comma_places(list).count()
}

fn nth_comma(list: &[u8], count: usize) -> usize {
    let place = comma_places(list).nth(count.saturating_sub(1));
    place.unwrap_or(list.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pretty(json: &str) -> String {
        let mut out = Vec::new();
        write_pretty(json.as_bytes(), 1, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn structs_are_indented_and_fields_keep_their_order() {
        let json = r#"{"header":{"stamp":{"sec":1,"nanosec":2},"frame_id":"a, \"b\": {"},"z":1.5,"a":[],"none":{}}"#;
        let wanted = "\n  header:\n    stamp:\n      sec: 1\n      nanosec: 2\n    frame_id: \"a, \\\"b\\\": {\"\n  z: 1.5\n  a: []\n  none: {}\n";
        assert_eq!(pretty(json), wanted);
    }

    #[test]
    fn lists_of_numbers_are_a_line_and_lists_of_structs_are_not() {
        let numbers: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let json = format!(
            r#"{{"ranges":[{}],"poses":[{{"x":1}},{{"x":2}}],"names":["a,b","c"]}}"#,
            numbers.join(",")
        );
        let wanted = "\n  ranges: [0,1,2,3,4,5,6,7,8,9,10,11, … (8 more)]\n  poses:\n    -\n      x: 1\n    -\n      x: 2\n  names: [\"a,b\",\"c\"]\n";
        assert_eq!(pretty(&json), wanted);
    }

    #[test]
    fn what_is_not_json_stays_as_it_is() {
        assert!(pretty("{\"a\":").contains("{\"a\":"));
        assert_eq!(pretty(""), "");
    }
}
