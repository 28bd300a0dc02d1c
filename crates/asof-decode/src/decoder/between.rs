//! Interpolation between two messages.

use asof_core::Stamp;

use super::Decoder;
use crate::PayloadError;
use crate::columns::Columns;

/// The last two interpolated messages, decoded: many rows are between the same two, and the second of them is the
/// first of the next two.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: [Option<Neighbour>; 2],
    /// The interpolated row.
    between: Columns,
    #[cfg(test)]
    decoded: usize,
}

/// A message, and its only row.
#[derive(Debug)]
struct Neighbour {
    payload: Vec<u8>,
    columns: Columns,
}

impl Decoder {
    /// Writes a message that is interpolated between two others, as a JSON object: `part` of the way from the first to
    /// the second. Floats are interpolated linearly, rotations along the arc, stamps to the nanosecond; everything
    /// else is as in the first. Returns `false`, and writes nothing, where they cannot be interpolated: their lists
    /// have different lengths, or the type is an image, a cloud, a map or a text.
    ///
    /// Two messages are decoded once, however often they are interpolated.
    ///
    /// # Errors
    /// When a payload cannot be decoded; nothing is written then.
    pub fn write_json_between(
        &mut self,
        pair: (&[u8], &[u8]),
        part: f64,
        out: &mut Vec<u8>,
    ) -> Result<bool, PayloadError> {
        let has_row = self.look_between(pair, part)?;
        if has_row {
            let root = &self.wire.layout().root;
            root.print_shown(&self.neighbours.between, 0, Some(&self.shown), out);
        }
        Ok(has_row)
    }

    /// Decodes a message that is interpolated between two others into a row, as
    /// [`write_json_between`](Self::write_json_between) writes it. Returns `false`, and adds no row, where they cannot
    /// be interpolated.
    ///
    /// # Errors
    /// When a payload cannot be decoded; no row is added then.
    pub fn append_between(
        &mut self,
        (log_time, publish_time): (Stamp, Stamp),
        pair: (&[u8], &[u8]),
        part: f64,
    ) -> Result<bool, PayloadError> {
        let has_row = self.look_between(pair, part)?;
        if has_row {
            self.columns.append(&self.neighbours.between);
            self.log_times.push(log_time.nanos() as u64);
            self.publish_times.push(publish_time.nanos() as u64);
        }
        Ok(has_row)
    }

    /// Makes the row between two messages; returns whether there is one.
    fn look_between(
        &mut self,
        (before, after): (&[u8], &[u8]),
        part: f64,
    ) -> Result<bool, PayloadError> {
        if !self.has_between {
            return Ok(false);
        }
        let first = self.neighbour(before, after)?;
        let second = self.neighbour(after, before)?;
        let layout = self.wire.layout();
        let Neighbours { known, between, .. } = &mut self.neighbours;
        let (Some(first), Some(second)) = (&known[first], &known[second]) else {
            return Ok(false);
        };
        layout.truncate(between, 0);
        between.append(&first.columns);
        between.append(&second.columns);
        let is_alike = layout.root.is_alike(between, 0, 1);
        if is_alike {
            layout.root.blend(between, 0, 1, part);
        }
        layout.truncate(between, 1);
        Ok(is_alike)
    }

    /// The slot of a decoded message; decodes it if needed, into a slot that does not hold `other`.
    fn neighbour(&mut self, payload: &[u8], other: &[u8]) -> Result<usize, PayloadError> {
        let is = |known: &Option<Neighbour>, payload: &[u8]| {
            known.as_ref().is_some_and(|known| known.payload == payload)
        };
        let known = &self.neighbours.known;
        if let Some(at) = known.iter().position(|known| is(known, payload)) {
            return Ok(at);
        }
        let at = usize::from(is(&known[0], other));
        let mut columns = match self.neighbours.known[at].take() {
            Some(mut old) => {
                self.wire.layout().truncate(&mut old.columns, 0);
                old.columns
            }
            None => self.wire.layout().columns(),
        };
        std::mem::swap(&mut self.columns, &mut columns);
        let pushed = self.push_row(payload, 0);
        std::mem::swap(&mut self.columns, &mut columns);
        #[cfg(test)]
        {
            self.neighbours.decoded += 1;
        }
        pushed?;
        let payload = payload.to_vec();
        self.neighbours.known[at] = Some(Neighbour { payload, columns });
        Ok(at)
    }
}

impl Neighbours {
    pub(super) fn new(columns: Columns) -> Self {
        Neighbours {
            between: columns,
            ..Neighbours::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use asof_core::{Channel, Schema};

    use super::*;
    use crate::Projection;

    /// A type with a stamp, a name, and lists of numbers and of structs: every sort of column.
    fn decoder() -> Decoder {
        let text = "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n\
            ================================================================================\n\
            MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n\
            ================================================================================\n\
            MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n";
        let schema = Schema {
            name: "sensor_msgs/msg/JointState".into(),
            encoding: "ros2msg".into(),
            data: text.into(),
        };
        let channel = Channel {
            topic: "/joint_states".into(),
            message_encoding: "cdr".into(),
            schema: Some(schema.into()),
            ..Channel::default()
        };
        Decoder::new(&channel, &Projection::All, &[]).expect("a decoder")
    }

    fn joints(sec: i32, names: &[&str], positions: &[f64]) -> Vec<u8> {
        let mut cdr = vec![0, 1, 0, 0];
        let align = |cdr: &mut Vec<u8>, to: usize| {
            while !(cdr.len() - 4).is_multiple_of(to) {
                cdr.push(0);
            }
        };
        let number = |cdr: &mut Vec<u8>, value: u32| {
            align(cdr, 4);
            cdr.extend(value.to_le_bytes());
        };
        let text = |cdr: &mut Vec<u8>, text: &str| {
            number(cdr, text.len() as u32 + 1);
            cdr.extend(text.bytes());
            cdr.push(0);
        };
        number(&mut cdr, sec as u32);
        number(&mut cdr, 0);
        text(&mut cdr, "base");
        number(&mut cdr, names.len() as u32);
        for name in names {
            text(&mut cdr, name);
        }
        number(&mut cdr, positions.len() as u32);
        if !positions.is_empty() {
            align(&mut cdr, 8);
        }
        for position in positions {
            cdr.extend(position.to_le_bytes());
        }
        number(&mut cdr, 0);
        number(&mut cdr, 0);
        cdr
    }

    fn json(decoder: &mut Decoder, pair: (&[u8], &[u8]), part: f64) -> Option<String> {
        let mut out = Vec::new();
        let is_there = decoder.write_json_between(pair, part, &mut out);
        is_there
            .expect("decodes")
            .then(|| String::from_utf8(out).expect("text"))
    }

    #[test]
    fn messages_are_decoded_once_however_many_rows_lie_between_them() {
        let mut decoder = decoder();
        let messages: Vec<_> = (0..4)
            .map(|at| joints(at, &["a", "b"], &[f64::from(at), 10.0 * f64::from(at)]))
            .collect();
        for pair in messages.windows(2) {
            for tenth in 0..10 {
                let part = f64::from(tenth) / 10.0;
                let found = json(&mut decoder, (&pair[0], &pair[1]), part);
                assert!(found.is_some());
                let at = Stamp::EPOCH;
                let appended = decoder.append_between((at, at), (&pair[0], &pair[1]), part);
                assert!(appended.expect("decodes"));
            }
        }
        assert_eq!(decoder.neighbours.decoded, 4);
        assert_eq!(decoder.take().expect("rows").expect("some").num_rows(), 30);
    }

    #[test]
    fn a_row_between_is_the_same_in_json_and_in_a_table_among_others() {
        let mut decoder = decoder();
        let (one, two) = (joints(1, &["arm"], &[1.0]), joints(3, &["arm"], &[2.0]));
        let other = joints(9, &["x", "yy", "zzz"], &[7.0, 8.0, 9.0]);
        let text = json(&mut decoder, (&one, &two), 0.25).expect("a row");
        assert!(text.contains(r#""sec":1,"nanosec":500000000"#), "{text}");
        assert!(text.contains(r#""position":[1.25]"#), "{text}");
        let at = Stamp::from_nanos(5);
        for _ in 0..2 {
            let run = [(at, at, other.as_slice().into())];
            decoder.append(&run, |_, error| panic!("{error}"));
            assert!(
                decoder
                    .append_between((at, at), (&one, &two), 0.25)
                    .expect("decodes")
            );
            decoder.append(&run, |_, error| panic!("{error}"));
            let batch = decoder.take().expect("rows").expect("some");
            assert_eq!(batch.num_rows(), 3);
            let rows = format!("{:?}", batch.column_by_name("position").expect("a column"));
            let numbers: Vec<f64> = rows
                .lines()
                .filter_map(|line| line.trim().trim_end_matches(',').parse().ok())
                .collect();
            assert_eq!(numbers, [7.0, 8.0, 9.0, 1.25, 7.0, 8.0, 9.0], "{rows}");
        }
    }

    #[test]
    fn what_does_not_decode_or_is_of_other_joints_leaves_nothing_behind() {
        let mut decoder = decoder();
        let one = joints(1, &["arm"], &[1.0]);
        let cut = &one[..one.len() - 9];
        let others = joints(2, &["leg"], &[1.0]);
        let more = joints(2, &["arm", "leg"], &[1.0, 2.0]);
        let mut out = Vec::new();
        for _ in 0..2 {
            assert!(
                decoder
                    .write_json_between((&one, cut), 0.5, &mut out)
                    .is_err()
            );
            assert!(
                decoder
                    .write_json_between((cut, &one), 0.5, &mut out)
                    .is_err()
            );
            assert_eq!(json(&mut decoder, (&one, &others), 0.5), None);
            assert_eq!(json(&mut decoder, (&one, &more), 0.5), None);
            assert!(out.is_empty() && decoder.rows() == 0);
            let same = json(&mut decoder, (&one, &one), 0.5).expect("a row");
            assert_eq!(same, decoder.json(&one).expect("decodes"));
        }
    }
}
