//! The timestamp index and the leaf pages of a table: what is known of messages without reading them.

use std::io;

use super::{
    INTERIOR, LEAF, MAX_TREE_DEPTH, PageError, Table, be16, child_of, integer, key, size_of, varint,
};

const INDEX_LEAF: u8 = 0x0a;
const INDEX_INTERIOR: u8 = 0x02;
/// Two integers and their types take at most 19 bytes; SQLite never spills an entry below 94 bytes to an overflow page.
const LARGEST_ENTRY: u64 = 64;

/// A page of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafPlace {
    pub page: u32,
    /// No row on it has a larger id.
    pub last: i64,
}

impl Table {
    /// The leaf pages of the table in row order, from the interior pages.
    pub fn leaves(&self, file: &[u8]) -> Result<Vec<LeafPlace>, PageError> {
        let depth = self.depth(file)?;
        let mut leaves: Vec<LeafPlace> = Vec::new();
        let mut left = vec![(
            0,
            LeafPlace {
                page: self.root,
                last: i64::MAX,
            },
        )];
        while let Some((level, place)) = left.pop() {
            let number = place.page;
            let refused = |what| PageError { page: number, what };
            if level == depth {
                if leaves.last().is_some_and(|leaf| leaf.last >= place.last) {
                    return Err(refused("its rows are not in order"));
                }
                leaves.push(place);
                continue;
            }
            let page = self.page(file, number)?;
            if page[0] != INTERIOR {
                return Err(refused("it is not as deep in the tree as others"));
            }
            let cells = usize::from(be16(page, 3).unwrap_or(0));
            if left.len() + leaves.len() + cells >= self.pages as usize {
                return Err(refused("the tree has circles"));
            }
            for index in (0..=cells).rev() {
                let last = if index == cells {
                    place.last
                } else {
                    key(page, index).map_err(refused)?
                };
                let below = child_of(page, index).map_err(refused)?;
                let page = below.ok_or(refused("it has no last child"))?;
                left.push((level + 1, LeafPlace { page, last }));
            }
        }
        Ok(leaves)
    }

    /// The number of interior pages above each leaf.
    fn depth(&self, file: &[u8]) -> Result<usize, PageError> {
        let mut number = self.root;
        for depth in 0..=MAX_TREE_DEPTH {
            let page = self.page(file, number)?;
            let refused = |what| PageError { page: number, what };
            match page[0] {
                LEAF => return Ok(depth),
                INTERIOR => {
                    let below = child_of(page, 0).map_err(refused)?;
                    number = below.ok_or(refused("it has no last child"))?;
                }
                _ => return Err(refused("it is not a page of a table")),
            }
        }
        Err(PageError {
            page: self.root,
            what: "the tree has circles",
        })
    }

    /// Calls `visit` with the time and the id of every message in one of `parts` parts of the index at `root`.
    ///
    /// Its pages are scattered over the file, and the system maps the neighbours of each: through a map, a part of the
    /// index would bring in the whole file. So they are read: `read` fills a buffer from an offset of the file.
    pub fn times(
        &self,
        read: impl Fn(&mut [u8], u64) -> io::Result<()>,
        root: u32,
        part: usize,
        parts: usize,
        mut visit: impl FnMut(i64, i64) -> Result<(), &'static str>,
    ) -> Result<(), PageError> {
        let mut left = vec![root];
        let mut looked_at = 0;
        let mut page = vec![0; self.usable];
        while let Some(number) = left.pop() {
            looked_at += 1;
            let refused = |what| PageError { page: number, what };
            let start = self.usable_place_of(number)?.start;
            read(&mut page, start as u64).map_err(|_| refused("it cannot be read"))?;
            let page = page.as_slice();
            let cells = usize::from(be16(page, 3).unwrap_or(0));
            let (pointers, before) = match page[0] {
                INDEX_LEAF => (8, 0),
                INDEX_INTERIOR => (12, 4),
                _ => return Err(refused("it is not a page of an index")),
            };
            let is_top = looked_at == 1;
            if page[0] == INDEX_INTERIOR {
                // The first child is visited first: neighbours in time are neighbours in the file.
                for index in (0..=cells).rev() {
                    if !is_top || index * parts / (cells + 1) == part {
                        left.extend(child_of(page, index).map_err(refused)?);
                    }
                }
            }
            if is_top && part > 0 {
                continue;
            }
            if looked_at + left.len() > self.pages as usize {
                return Err(refused("the tree has circles"));
            }
            for index in 0..cells {
                let at =
                    be16(page, pointers + 2 * index).ok_or(refused("a cell leaves its page"))?;
                let (time, id) = entry(page, usize::from(at) + before).map_err(refused)?;
                visit(time, id).map_err(refused)?;
            }
        }
        Ok(())
    }
}

/// The time and the id in the entry at `at`.
#[inline]
fn entry(page: &[u8], at: usize) -> Result<(i64, i64), &'static str> {
    usual_entry(page, at).map_or_else(|| unusual_entry(page, at), Ok)
}

/// The common case: a time of eight bytes and an id of up to four.
#[inline]
fn usual_entry(page: &[u8], at: usize) -> Option<(i64, i64)> {
    let &[len, 3, 6, kind @ 1..=4, ref values @ ..] = page.get(at..)?.first_chunk::<16>()? else {
        return None;
    };
    let (time, id) = (values.first_chunk()?, values.last_chunk()?);
    let id = i32::from_be_bytes(*id) >> (32 - 8 * u32::from(kind));
    (len == 11 + kind).then_some((i64::from_be_bytes(*time), i64::from(id)))
}

fn unusual_entry(page: &[u8], at: usize) -> Result<(i64, i64), &'static str> {
    let short = "an entry leaves its page";
    let (len, start) = varint(page, at).ok_or(short)?;
    if len > LARGEST_ENTRY {
        return Err("an entry is too large");
    }
    let record = page.get(start..start + len as usize).ok_or(short)?;
    let &[3, time, id, ..] = record else {
        return Err("an entry is not a time and an id");
    };
    let (time, id) = (u64::from(time), u64::from(id));
    let behind_time = 3 + size_of(time).ok_or(short)?;
    let no_number = "an entry has no number";
    Ok((
        integer(record, 3, time)?.ok_or(no_number)?,
        integer(record, behind_time, id)?.ok_or(no_number)?,
    ))
}
