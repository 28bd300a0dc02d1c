//! Interpolation between two messages.
//!
//! Both are decoded as rows; the floats, stamps and rotations of the first are then moved towards those of the second.
//! Values that cannot be interpolated (texts, integers, booleans) stay those of the first, which is what was known at
//! the time.

use asof_align::between;

use crate::columns::Columns;
use crate::layout::{Group, Node, Shape};
use crate::model::Scalar;
use crate::print::number_at;
use crate::stamps::parts_of;

impl Group {
    /// Whether two rows can be interpolated: their lists have equal lengths, the same fields are present, and the
    /// names in them agree.
    pub fn is_alike(&self, columns: &Columns, a: usize, b: usize) -> bool {
        self.fields
            .iter()
            .flatten()
            .all(|node| node.is_alike(columns, a, b))
    }

    /// Moves row `a` towards row `b` by `part`.
    pub fn blend(&self, columns: &mut Columns, a: usize, b: usize, part: f64) {
        if let Some((seconds, nanos)) = self.time_parts() {
            blend_times(columns, seconds, nanos, a, b, part);
            return;
        }
        if let Some(parts) = self.quaternion() {
            blend_rotations(columns, parts, a, b, part);
            return;
        }
        for node in self.fields.iter().flatten() {
            node.blend(columns, a, b, part);
        }
    }

    /// The integer columns of a struct that is a time.
    fn time_parts(&self) -> Option<((Scalar, usize), (Scalar, usize))> {
        let is_whole = self.fields.len() == 2;
        let (seconds, nanos) = parts_of(|name| match self.find(name)?.shape {
            Shape::Scalar(Scalar::Float32 | Scalar::Float64, _) => None,
            Shape::Scalar(scalar, column) => Some((scalar, column)),
            _ => None,
        })?;
        is_whole.then_some((seconds, nanos))
    }

    /// The columns of x, y, z and w, if the struct has only these and all are of one width.
    fn quaternion(&self) -> Option<[(Scalar, usize); 4]> {
        let [Some(x), Some(y), Some(z), Some(w)] = &self.fields[..] else {
            return None;
        };
        let mut parts = [(Scalar::Float64, 0); 4];
        for (at, (node, name)) in [x, y, z, w]
            .into_iter()
            .zip(["x", "y", "z", "w"])
            .enumerate()
        {
            match node.shape {
                Shape::Scalar(scalar @ (Scalar::Float32 | Scalar::Float64), column)
                    if node.name == name =>
                {
                    parts[at] = (scalar, column);
                }
                _ => return None,
            }
        }
        Some(parts)
    }
}

impl Node {
    fn is_alike(&self, columns: &Columns, a: usize, b: usize) -> bool {
        if self.is_absent(columns, a) || self.is_absent(columns, b) {
            return self.is_absent(columns, a) == self.is_absent(columns, b);
        }
        match &self.shape {
            Shape::Text(column) | Shape::Json(column) => {
                let texts = &columns.texts[*column];
                texts.get(a) == texts.get(b)
            }
            Shape::Struct(group) => group.is_alike(columns, a, b),
            Shape::List(ends, item) => {
                let ends = &columns.ends[*ends];
                let (of_a, of_b) = (span(ends, a), span(ends, b));
                of_a.len() == of_b.len()
                    && of_a.zip(of_b).all(|(a, b)| item.is_alike(columns, a, b))
            }
            Shape::Array(size, item) => {
                let size = *size as usize;
                (0..size).all(|at| item.is_alike(columns, a * size + at, b * size + at))
            }
            _ => true,
        }
    }

    fn blend(&self, columns: &mut Columns, a: usize, b: usize, part: f64) {
        if self.is_absent(columns, a) {
            return;
        }
        match &self.shape {
            Shape::Scalar(scalar @ (Scalar::Float32 | Scalar::Float64), column) => {
                let (from, to) = (
                    float_at(columns, *scalar, *column, a),
                    float_at(columns, *scalar, *column, b),
                );
                put_float(
                    columns,
                    *scalar,
                    *column,
                    a,
                    between::number(from, to, part),
                );
            }
            Shape::Struct(group) => group.blend(columns, a, b, part),
            Shape::List(ends, item) => {
                let ends = &columns.ends[*ends];
                let pairs = span(ends, a).zip(span(ends, b));
                for (a, b) in pairs {
                    item.blend(columns, a, b, part);
                }
            }
            Shape::Array(size, item) => {
                let size = *size as usize;
                for at in 0..size {
                    item.blend(columns, a * size + at, b * size + at, part);
                }
            }
            _ => {}
        }
    }
}

fn span(ends: &[i32], row: usize) -> std::ops::Range<usize> {
    ends[row] as usize..ends[row + 1] as usize
}

fn float_at(columns: &Columns, scalar: Scalar, column: usize, row: usize) -> f64 {
    if scalar == Scalar::Float32 {
        f64::from(f32::from_bits(columns.w4[column][row]))
    } else {
        f64::from_bits(columns.w8[column][row])
    }
}

fn put_float(columns: &mut Columns, scalar: Scalar, column: usize, row: usize, value: f64) {
    if scalar == Scalar::Float32 {
        columns.w4[column][row] = (value as f32).to_bits();
    } else {
        columns.w8[column][row] = value.to_bits();
    }
}

fn blend_times(
    columns: &mut Columns,
    seconds: (Scalar, usize),
    nanos: (Scalar, usize),
    a: usize,
    b: usize,
    part: f64,
) {
    let time = |columns: &Columns, row: usize| {
        i128::from(number_at(columns, seconds.0, seconds.1, row)) * 1_000_000_000
            + i128::from(number_at(columns, nanos.0, nanos.1, row))
    };
    let (from, to) = (time(columns, a), time(columns, b));
    let time = between::time(from, to, part);
    let mut put = |(scalar, column): (Scalar, usize), value: i128| match scalar.width() {
        4 => columns.w4[column][a] = value as u32,
        8 => columns.w8[column][a] = value as u64,
        _ => {}
    };
    put(seconds, time.div_euclid(1_000_000_000));
    put(nanos, time.rem_euclid(1_000_000_000));
}

fn blend_rotations(
    columns: &mut Columns,
    parts: [(Scalar, usize); 4],
    a: usize,
    b: usize,
    part: f64,
) {
    let of = |columns: &Columns, row: usize| {
        parts.map(|(scalar, column)| float_at(columns, scalar, column, row))
    };
    let between = between::rotation(of(columns, a), of(columns, b), part);
    for ((scalar, column), value) in parts.into_iter().zip(between) {
        put_float(columns, scalar, column, a, value);
    }
}
