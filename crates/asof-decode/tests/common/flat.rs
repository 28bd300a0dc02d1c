//! FlatBuffers, written by hand: the front points to what lies behind it.

/// A value in a buffer.
#[derive(Debug, Clone)]
pub enum Flat {
    U8(u8),
    U16(u16),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A struct of two words, which lies where it is used.
    Pair(u32, u32),
    Text(String),
    Bytes(Vec<u8>),
    /// Its fields by their slots.
    Table(Vec<Option<Flat>>),
    /// A vector of what is pointed to.
    Tables(Vec<Flat>),
    /// The same, this many times the same one.
    Shared(Box<Flat>, usize),
    /// A vector of what lies in it.
    Numbers(Vec<Flat>),
}

/// A whole buffer with this root and this identifier.
pub fn buffer(root: &Flat, identifier: [u8; 4]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(identifier);
    let place = put(root, &mut out);
    point(&mut out, 0, place);
    out
}

/// What lies in a table or a vector itself; `None` for what is pointed to.
fn inline(value: &Flat) -> Option<Vec<u8>> {
    Some(match value {
        Flat::U8(v) => vec![*v],
        Flat::U16(v) => v.to_le_bytes().to_vec(),
        Flat::I32(v) => v.to_le_bytes().to_vec(),
        Flat::I64(v) => v.to_le_bytes().to_vec(),
        Flat::F32(v) => v.to_le_bytes().to_vec(),
        Flat::F64(v) => v.to_le_bytes().to_vec(),
        Flat::Pair(a, b) => [a.to_le_bytes(), b.to_le_bytes()].concat(),
        _ => return None,
    })
}

fn alignment(value: &Flat) -> usize {
    match value {
        Flat::U8(_) => 1,
        Flat::U16(_) => 2,
        Flat::I64(_) | Flat::F64(_) => 8,
        _ => 4,
    }
}

fn point(out: &mut [u8], from: usize, to: usize) {
    out[from..from + 4].copy_from_slice(&((to - from) as u32).to_le_bytes());
}

fn pad(out: &mut Vec<u8>, alignment: usize) {
    out.resize(out.len().next_multiple_of(alignment), 0);
}

/// Writes something that is pointed to; where it is.
fn put(value: &Flat, out: &mut Vec<u8>) -> usize {
    match value {
        Flat::Table(fields) => table(fields, out),
        Flat::Text(text) => {
            let place = vector(text.as_bytes(), text.len(), 1, out);
            out.push(0);
            place
        }
        Flat::Bytes(bytes) => vector(bytes, bytes.len(), 1, out),
        Flat::Numbers(items) => {
            let bytes: Vec<u8> = items.iter().filter_map(inline).flatten().collect();
            vector(&bytes, items.len(), items.first().map_or(1, alignment), out)
        }
        Flat::Tables(items) => {
            let place = vector(&vec![0; 4 * items.len()], items.len(), 4, out);
            for (at, item) in items.iter().enumerate() {
                let inner = put(item, out);
                point(out, place + 4 + 4 * at, inner);
            }
            place
        }
        Flat::Shared(item, count) => {
            let place = vector(&vec![0; 4 * count], *count, 4, out);
            let inner = put(item, out);
            for at in 0..*count {
                point(out, place + 4 + 4 * at, inner);
            }
            place
        }
        other => panic!("{other:?} is not pointed to"),
    }
}

fn vector(bytes: &[u8], len: usize, alignment: usize, out: &mut Vec<u8>) -> usize {
    pad(out, 4);
    while !(out.len() + 4).is_multiple_of(alignment) {
        out.push(0);
    }
    let place = out.len();
    out.extend((len as u32).to_le_bytes());
    out.extend_from_slice(bytes);
    place
}

fn table(fields: &[Option<Flat>], out: &mut Vec<u8>) -> usize {
    let mut size = 4usize;
    let places: Vec<usize> = fields
        .iter()
        .map(|field| {
            let Some(field) = field else { return 0 };
            size = size.next_multiple_of(alignment(field));
            let place = size;
            size += inline(field).map_or(4, |bytes| bytes.len());
            place
        })
        .collect();
    pad(out, 2);
    let slots = out.len();
    let words = [4 + 2 * fields.len(), size]
        .into_iter()
        .chain(places.clone());
    words.for_each(|word| out.extend((word as u16).to_le_bytes()));
    pad(out, 8);
    let start = out.len();
    out.extend(((start - slots) as i32).to_le_bytes());
    out.resize(start + size, 0);
    for (field, place) in fields.iter().zip(places) {
        let Some(field) = field else { continue };
        let at = start + place;
        if let Some(bytes) = inline(field) {
            out[at..at + bytes.len()].copy_from_slice(&bytes);
        } else {
            let inner = put(field, out);
            point(out, at, inner);
        }
    }
    start
}
