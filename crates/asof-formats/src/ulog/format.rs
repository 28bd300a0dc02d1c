//! The layouts that a ULog declares, and their conversion to CDR.
//!
//! A ULog declares the fields of its messages and packs them without gaps. Payloads are returned as CDR with a
//! `ros2msg` definition, which every reader of ROS 2 recordings can decode; text fields, which a ULog pads with zeros,
//! become strings.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use asof_ros::CdrWriter;

/// Formats by their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Formats {
    by_name: HashMap<String, Vec<Field>>,
    /// How many formats would have a type's name.
    by_type: HashMap<String, usize>,
    /// The layouts of the definitions so far.
    layouts: HashMap<String, Arc<Layout>>,
    /// The number of fields of all layouts so far.
    laid_out: usize,
    /// The bytes of their definitions.
    defined: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    kind: Kind,
    /// `None` for a single value.
    count: Option<usize>,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Its width, and its name in ROS.
    Scalar(usize, &'static str),
    Char,
    Nested(String),
}

/// The most fields of a layout, with nested ones expanded.
const MOST_STEPS: usize = 20_000;
/// The most fields of all layouts together, to bound memory: no file needs more.
const MOST_STEPS_IN_ALL: usize = 1_000_000;
/// The most bytes of the definitions of all layouts together.
const MOST_DEFINED: usize = 64 << 20;
/// How deep formats may nest.
const MAX_DEPTH: usize = 16;
/// The separator between the parts of a definition.
const RULE: &str =
    "================================================================================";

impl Formats {
    /// Adds a definition, `name:type field;type[3] field;`; an error if it cannot be parsed.
    pub fn add(&mut self, text: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
        let (name, fields) = text.split_once(':').ok_or("it has no name")?;
        let fields = fields
            .split(';')
            .map(str::trim)
            .filter(|field| !field.is_empty())
            .map(Field::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let name = name.trim();
        if self.by_name.get(name) == Some(&fields) {
            return Ok(());
        }
        let is_other = if self.by_name.insert(name.to_owned(), fields).is_none() {
            let named = self.by_type.entry(camel_case(name)).or_default();
            *named += 1;
            // A type's name depends on how many formats would have it.
            *named > 1
        } else {
            true
        };
        if is_other {
            self.layouts.clear();
        }
        Ok(())
    }

    /// How messages of a format become CDR; the same for each of its subscriptions.
    pub fn layout(&mut self, name: &str) -> Result<Arc<Layout>, String> {
        if let Some(known) = self.layouts.get(name) {
            return Ok(Arc::clone(known));
        }
        if self.laid_out > MOST_STEPS_IN_ALL || self.defined > MOST_DEFINED {
            return Err("the log has more subscriptions than can be held".to_owned());
        }
        let mut compiler = Compiler {
            formats: self,
            steps: Vec::new(),
            at: 0,
            needed: 0,
            timestamp: None,
            count: 0,
        };
        let compiled = compiler.group(name, 0);
        let count = compiler.count;
        let (steps, needed, timestamp) = (compiler.steps, compiler.needed, compiler.timestamp);
        self.laid_out += count;
        compiled?;
        let definition = self.definition(name);
        self.defined += definition.len();
        let layout = Arc::new(Layout {
            definition,
            steps,
            needed,
            timestamp,
        });
        self.layouts.insert(name.to_owned(), Arc::clone(&layout));
        Ok(layout)
    }

    /// The format and its dependencies, in ROS 2's syntax.
    fn definition(&self, name: &str) -> String {
        let mut text = self.own_definition(name);
        let mut waiting = self.nested_in(name);
        let mut known = HashSet::from([name.to_owned()]);
        while let Some(nested) = waiting.pop() {
            if !known.insert(nested.clone()) {
                continue;
            }
            let _ = write!(
                text,
                "{RULE}\nMSG: {}\n{}",
                self.full_name(&nested),
                self.own_definition(&nested)
            );
            waiting.extend(self.nested_in(&nested));
        }
        text
    }

    fn own_definition(&self, name: &str) -> String {
        let mut text = String::new();
        for field in self
            .by_name
            .get(name)
            .into_iter()
            .flatten()
            .filter(|field| !field.is_padding())
        {
            let count = field
                .count
                .map(|count| format!("[{count}]"))
                .unwrap_or_default();
            let _ = match &field.kind {
                Kind::Scalar(_, kind) => writeln!(text, "{kind}{count} {}", field.name),
                Kind::Char if field.count.is_some() => writeln!(text, "string {}", field.name),
                Kind::Char => writeln!(text, "uint8 {}", field.name),
                Kind::Nested(kind) => {
                    writeln!(text, "{}{count} {}", self.full_name(kind), field.name)
                }
            };
        }
        if text.is_empty() {
            // CDR has no empty messages; ROS 2 gives them this field.
            text.push_str("uint8 structure_needs_at_least_one_member\n");
        }
        text
    }

    /// The name of a format's type: `VehicleAttitude`, as PX4 names its types for ROS 2.
    pub fn type_name(&self, format: &str) -> String {
        let name = camel_case(format);
        let own = usize::from(self.by_name.contains_key(format));
        if self
            .by_type
            .get(&name)
            .is_some_and(|&formats| formats > own)
        {
            format.to_owned()
        } else {
            name
        }
    }

    fn full_name(&self, format: &str) -> String {
        format!("ulog/{}", self.type_name(format))
    }

    fn nested_in(&self, name: &str) -> Vec<String> {
        let fields = self.by_name.get(name).into_iter().flatten();
        fields
            .filter_map(|field| match &field.kind {
                Kind::Nested(kind) => Some(kind.clone()),
                _ => None,
            })
            .collect()
    }
}

/// `vehicle_attitude` becomes `VehicleAttitude`: type names have no underscores in ROS, and readers enforce it.
fn camel_case(format: &str) -> String {
    let words = format.split('_');
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    words.map(capital).collect()
}

impl Field {
    fn parse(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once(' ')
            .ok_or_else(|| format!("'{text}' has no name"))?;
        let (kind, count) = match kind.split_once('[') {
            Some((kind, count)) => {
                let count = count.strip_suffix(']').and_then(|count| count.parse().ok());
                (
                    kind,
                    Some(count.ok_or_else(|| format!("'{text}' has no good length"))?),
                )
            }
            None => (kind, None),
        };
        let kind = match kind {
            "int8_t" => Kind::Scalar(1, "int8"),
            "uint8_t" => Kind::Scalar(1, "uint8"),
            "bool" => Kind::Scalar(1, "bool"),
            "int16_t" => Kind::Scalar(2, "int16"),
            "uint16_t" => Kind::Scalar(2, "uint16"),
            "int32_t" => Kind::Scalar(4, "int32"),
            "uint32_t" => Kind::Scalar(4, "uint32"),
            "float" => Kind::Scalar(4, "float32"),
            "int64_t" => Kind::Scalar(8, "int64"),
            "uint64_t" => Kind::Scalar(8, "uint64"),
            "double" => Kind::Scalar(8, "float64"),
            "char" => Kind::Char,
            other => Kind::Nested(other.to_owned()),
        };
        let name = name.trim().to_owned();
        Ok(Field { kind, count, name })
    }

    /// Loggers fill gaps with fields of this name, which carry no data.
    fn is_padding(&self) -> bool {
        self.name.starts_with("_padding")
    }
}

/// How messages of one format become CDR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The full definition, as `ros2msg`.
    pub definition: String,
    steps: Vec<Step>,
    /// The smallest size of a message, in bytes.
    needed: usize,
    /// Offset and width of the timestamp.
    timestamp: Option<(usize, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// This many bytes from this offset, of values of this width.
    Copy {
        width: usize,
        from: usize,
        len: usize,
    },
    /// Text of at most this many bytes, padded with zeros.
    Text {
        from: usize,
        len: usize,
    },
    Zero,
}

impl Layout {
    /// The timestamp of a message, in microseconds.
    pub fn time_of(&self, data: &[u8]) -> Option<u64> {
        let (from, width) = self.timestamp?;
        let mut word = [0; 8];
        word[..width].copy_from_slice(data.get(from..from + width)?);
        Some(u64::from_le_bytes(word))
    }

    /// Appends a message as CDR; `false` if it is too short for its format.
    pub fn transcode(&self, data: &[u8], out: &mut Vec<u8>) -> bool {
        if data.len() < self.needed {
            return false;
        }
        let mut out = CdrWriter::new(out);
        for step in &self.steps {
            match *step {
                Step::Copy { width, from, len } => {
                    out.align(width).raw(&data[from..from + len]);
                }
                Step::Text { from, len } => {
                    let text = &data[from..from + len];
                    let end = memchr::memchr(0, text).unwrap_or(len);
                    out.string(&text[..end]);
                }
                Step::Zero => {
                    out.byte(0);
                }
            }
        }
        true
    }

    /// Whether a message of this length has all fields of its format.
    pub fn fits(&self, len: usize) -> bool {
        len >= self.needed
    }
}

struct Compiler<'a> {
    formats: &'a Formats,
    steps: Vec<Step>,
    at: usize,
    needed: usize,
    timestamp: Option<(usize, usize)>,
    /// Fields and groups, before neighbours are joined, so that no format can cause endless work.
    count: usize,
}

impl Compiler<'_> {
    fn group(&mut self, name: &str, depth: usize) -> Result<(), String> {
        let fields = self.formats.by_name.get(name);
        let fields = fields.ok_or_else(|| format!("there is no format '{name}'"))?;
        if depth > MAX_DEPTH {
            return Err(format!("'{name}' is nested too deep"));
        }
        self.count_one()?;
        if fields.iter().all(Field::is_padding) {
            self.push(Step::Zero)?;
        }
        for field in fields {
            self.field(field, depth)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, depth: usize) -> Result<(), String> {
        let count = field.count.unwrap_or(1);
        let (from, too_large) = (self.at, || format!("'{}' is too large", field.name));
        match &field.kind {
            Kind::Nested(kind) => {
                for _ in 0..count {
                    self.group(kind, depth + 1)?;
                }
                return Ok(());
            }
            Kind::Scalar(width, _) => {
                let len = width.checked_mul(count).filter(|&len| len <= 1 << 16);
                let (width, len) = (*width, len.ok_or_else(too_large)?);
                self.at += len;
                if field.name == "timestamp" && depth == 0 && field.count.is_none() {
                    self.timestamp = Some((from, width));
                }
                if field.is_padding() || len == 0 {
                    return Ok(());
                }
                self.push(Step::Copy { width, from, len })?;
            }
            Kind::Char => {
                let len = Some(count)
                    .filter(|&len| len <= 1 << 16)
                    .ok_or_else(too_large)?;
                self.at += len;
                if field.is_padding() {
                    return Ok(());
                }
                self.push(if field.count.is_some() {
                    Step::Text { from, len }
                } else {
                    Step::Copy {
                        width: 1,
                        from,
                        len,
                    }
                })?;
            }
        }
        // Padding at the end is not written.
        self.needed = self.at;
        Ok(())
    }

    fn count_one(&mut self) -> Result<(), String> {
        self.count += 1;
        if self.count > MOST_STEPS {
            return Err(format!("it has more than {MOST_STEPS} fields"));
        }
        Ok(())
    }

    fn push(&mut self, step: Step) -> Result<(), String> {
        self.count_one()?;
        // Neighbours of one width are one copy.
        if let (
            Some(Step::Copy { width, from, len }),
            Step::Copy {
                width: next_width,
                from: next_from,
                len: next_len,
            },
        ) = (self.steps.last_mut(), step)
            && *width == next_width
            && *from + *len == next_from
        {
            *len += next_len;
            return Ok(());
        }
        self.steps.push(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats(texts: &[&str]) -> Formats {
        let mut formats = Formats::default();
        for text in texts {
            formats.add(text.as_bytes()).expect(text);
        }
        formats
    }

    #[test]
    fn a_packed_message_becomes_cdr_with_its_gaps() {
        let layout =
            formats(&["m:uint64_t timestamp;uint8_t a;float b;int16_t[3] c;uint8_t[2] _padding0;"])
                .layout("m")
                .expect("a layout");
        let mut data = 5u64.to_le_bytes().to_vec();
        data.push(7);
        data.extend(1.5f32.to_le_bytes());
        data.extend([1, 0, 2, 0, 3, 0]);
        assert_eq!(layout.time_of(&data), Some(5));
        let mut out = Vec::new();
        assert!(layout.transcode(&data, &mut out));
        let mut wanted = vec![0, 1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0];
        wanted.extend(1.5f32.to_le_bytes());
        wanted.extend([1, 0, 2, 0, 3, 0]);
        assert_eq!(out, wanted);
        assert!(!layout.transcode(&data[..18], &mut out));
        assert_eq!(
            layout.definition,
            "uint64 timestamp\nuint8 a\nfloat32 b\nint16[3] c\n"
        );
    }

    #[test]
    fn nested_formats_and_text_are_laid_out() {
        let layout = formats(&[
            "m:uint64_t timestamp;part[2] parts;char[4] name;",
            "part:uint8_t id;",
        ])
        .layout("m")
        .expect("a layout");
        let mut data = vec![0; 8];
        data.extend([1, 2]);
        data.extend(b"ab\0x");
        let mut out = Vec::new();
        assert!(layout.transcode(&data, &mut out));
        assert_eq!(out[12..], [1, 2, 0, 0, 3, 0, 0, 0, b'a', b'b', 0]);
        assert!(
            layout
                .definition
                .starts_with("uint64 timestamp\nulog/Part[2] parts\nstring name\n===")
        );
        assert!(layout.definition.ends_with("MSG: ulog/Part\nuint8 id\n"));
    }

    #[test]
    fn a_format_that_contains_itself_or_is_endless_is_refused() {
        let mut formats = formats(&[
            "a:a[9] x;",
            "b:c[60000] x;",
            "c:d[60000] y;",
            "d:uint8_t z;float w;",
        ]);
        assert!(formats.layout("a").is_err());
        assert!(formats.layout("b").is_err());
        assert!(formats.layout("missing").is_err());
    }
}
