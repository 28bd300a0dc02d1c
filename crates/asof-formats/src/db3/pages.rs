//! The rows of one SQLite table, read from the file's pages without SQLite.
//!
//! SQLite steps through a table at about a microsecond a row; here a row is a few integers decoded in place, and its
//! payload a range of the mapped file. This reads the documented file format: the database header, table b-tree pages,
//! overflow chains and the record format. Anything that is not exactly as expected is an error, and SQLite reads the
//! file instead. Every row, chain and walk is bounded by the number of pages in the file.

mod times;

use std::ops::{Range, RangeInclusive};

/// A table of messages in a file's pages.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    page_size: usize,
    /// Bytes of a page that hold data; the rest is reserved for extensions of SQLite.
    usable: usize,
    /// Pages in the file.
    pages: u32,
    root: u32,
    columns: Columns,
}

/// The columns of a record that make up a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    pub topic: usize,
    pub time: usize,
    pub data: usize,
}

impl Columns {
    /// The order in every version of rosbag2, after the id.
    const USUAL: Columns = Columns {
        topic: 1,
        time: 2,
        data: 3,
    };
}

/// A row. Topic or time is `None` where the record does not hold an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRow {
    pub id: i64,
    pub topic: Option<i64>,
    pub time: Option<i64>,
    pub payload: Payload,
}

/// Where a payload is in the file: in one range, or started there and continued on overflow pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payload {
    /// The offset of the first byte in the file.
    pub offset: usize,
    pub len: u32,
    /// How many bytes are at `offset`.
    pub local: u32,
    /// The first overflow page; 0 if there is none.
    pub next: u32,
    /// Whether the payload ends its record, so that its last page has no successor.
    is_last: bool,
}

impl Payload {
    /// An empty payload.
    const NONE: Payload = Payload {
        offset: 0,
        len: 0,
        local: 0,
        next: 0,
        is_last: false,
    };

    /// Whether the payload is the last value of its record.
    pub fn ends_record(&self) -> bool {
        self.is_last
    }

    /// Its bytes, if they are contiguous.
    pub fn on_one_page<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        if self.local < self.len {
            return None;
        }
        file.get(self.offset..self.offset + self.len as usize)
    }
}

/// What is wrong with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("page {page}: {what}")]
pub(crate) struct PageError {
    page: u32,
    what: &'static str,
}

const LEAF: u8 = 0x0d;
const INTERIOR: u8 = 0x05;
/// SQLite's own limit.
const MAX_TREE_DEPTH: usize = 20;

impl Table {
    /// Parses the header of a file; `root` is the table's first page, from the schema.
    pub fn new(file: &[u8], root: u32, columns: Columns) -> Result<Self, PageError> {
        Self::of(file, file.len(), root, columns)
    }

    /// The same, given only the start of a file.
    pub fn of(front: &[u8], size: usize, root: u32, columns: Columns) -> Result<Self, PageError> {
        let refused = |what| PageError { page: 1, what };
        let header: &[u8; 100] = front
            .first_chunk()
            .filter(|header| header.starts_with(b"SQLite format 3\0"))
            .ok_or(refused("it is not a header of an SQLite file"))?;
        let page_size = match be16(header, 16) {
            Some(1) => 65536,
            Some(size) => usize::from(size),
            None => 0,
        };
        if !page_size.is_power_of_two() || !(512..=65536).contains(&page_size) {
            return Err(refused("its page size is none of SQLite's"));
        }
        let usable = page_size - usize::from(header[20]);
        if usable < 480 {
            return Err(refused("its pages have no room"));
        }
        if be32(header, 56) != Some(1) {
            return Err(refused("its text is not in UTF-8"));
        }
        let pages = u32::try_from(size / page_size).unwrap_or(u32::MAX - 1);
        Ok(Table {
            page_size,
            usable,
            pages,
            root,
            columns,
        })
    }

    /// The rows from one id to another, both included, in order.
    pub fn rows<'a>(&'a self, file: &'a [u8], first: i64, last: i64) -> Rows<'a> {
        Rows {
            table: self,
            file,
            first,
            last,
            path: Vec::new(),
            leaf: Leaf::default(),
            looked_at: 0,
            behind: None,
            has_started: false,
        }
    }

    /// Up to `count` ranges of ids that together are all rows, in order, of about the same size.
    pub fn parts(&self, file: &[u8], count: usize) -> Vec<RangeInclusive<i64>> {
        let root = self.page(file, self.root).unwrap_or_default();
        let cells = match root.first() {
            Some(&INTERIOR) => usize::from(be16(root, 3).unwrap_or(0)),
            _ => 0,
        };
        let last_ids = (1..count).filter_map(|part| key(root, part * cells / count).ok());
        let mut parts = Vec::with_capacity(count);
        let mut first = i64::MIN;
        for last in last_ids.take(if cells < count { 0 } else { count }) {
            if last < first || last == i64::MAX {
                break;
            }
            parts.push(first..=last);
            first = last + 1;
        }
        parts.push(first..=i64::MAX);
        parts
    }

    /// The table's first page.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Pages in the file.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of the overflow pages of a payload.
    pub fn overflow_bytes(&self, payload: &Payload) -> u64 {
        if payload.len == payload.local {
            return 0;
        }
        let pages = (payload.len - payload.local).div_ceil(self.usable as u32 - 4);
        u64::from(pages) * self.page_size as u64
    }

    /// The bytes of a page in the file.
    pub fn place_of(&self, page: u32) -> Range<usize> {
        let start = (page as usize).saturating_sub(1) * self.page_size;
        start..start + self.page_size
    }

    /// Copies a payload, however many pages it is on; `visit` is called with each overflow page.
    pub fn assemble(
        &self,
        file: &[u8],
        payload: &Payload,
        to: &mut [u8],
        mut visit: impl FnMut(u32),
    ) -> Result<(), PageError> {
        let outside = PageError {
            page: payload.next,
            what: "a payload is outside of the file",
        };
        let local = payload.local as usize;
        let here = file.get(payload.offset..payload.offset + local);
        let (Some(here), Some((head, mut rest))) = (here, to.split_at_mut_checked(local)) else {
            return Err(outside);
        };
        head.copy_from_slice(here);
        let mut next = payload.next;
        while !rest.is_empty() {
            let page = self.page(file, next)?;
            visit(next);
            let len = rest.len().min(self.usable - 4);
            let (here, behind) = rest.split_at_mut(len);
            here.copy_from_slice(&page[4..4 + len]);
            rest = behind;
            next = be32(page, 0).unwrap_or(0);
        }
        // A chain that loops never ends, although enough pages were read.
        if payload.next != 0 && payload.is_last && next != 0 {
            let what = "the pages of a payload do not end where it does";
            return Err(PageError { page: next, what });
        }
        Ok(())
    }

    /// The overflow pages of a payload, with `next_of` as the successor of each; `None` if they are outside of the file
    /// or do not end with the payload.
    pub fn chain(
        &self,
        payload: &Payload,
        mut next_of: impl FnMut(u32) -> Option<u32>,
    ) -> Option<Vec<u32>> {
        let mut left = payload.len.saturating_sub(payload.local) as usize;
        let mut chain = Vec::new();
        let mut next = payload.next;
        while left > 0 {
            // The partial last page of a truncated file may still hold all that is needed.
            if next == 0 || next > self.pages + 1 {
                return None;
            }
            chain.push(next);
            left = left.saturating_sub(self.usable - 4);
            next = next_of(next)?;
        }
        (chain.is_empty() || !payload.is_last || next == 0).then_some(chain)
    }

    /// The size of a page, and how much of it is usable for data.
    pub fn page_sizes(&self) -> (usize, usize) {
        (self.page_size, self.usable)
    }

    /// The rows of a page, if it is a table leaf, each with the offset of its cell. Damaged cells are skipped.
    pub fn rows_of_leaf<'a>(
        &'a self,
        page: &'a [u8],
        number: u32,
    ) -> impl Iterator<Item = (u16, PageRow)> + 'a {
        let page = page.get(..self.usable).unwrap_or_default();
        let is_leaf = page.first() == Some(&LEAF);
        let cells = is_leaf.then(|| cells_of(page)).flatten();
        let cells = cells.unwrap_or_default().chunks_exact(2);
        cells.filter_map(move |at| {
            let at = u16::from_be_bytes([at[0], at[1]]);
            Some((at, self.row_at(page, number, at)?))
        })
    }

    /// The row whose cell is at an offset of a leaf.
    pub fn row_at(&self, page: &[u8], number: u32, at: u16) -> Option<PageRow> {
        let page = page.get(..self.usable)?;
        self.row(page, number, cell(page, at.into())?).ok()
    }

    /// The usable bytes of a page.
    fn page<'a>(&self, file: &'a [u8], page: u32) -> Result<&'a [u8], PageError> {
        let place = self.usable_place_of(page)?;
        file.get(place).ok_or(outside(page))
    }

    /// Where in the file the usable bytes of a page are.
    fn usable_place_of(&self, page: u32) -> Result<Range<usize>, PageError> {
        if page == 0 || page > self.pages {
            return Err(outside(page));
        }
        let start = self.place_of(page).start;
        Ok(start..start + self.usable)
    }

    /// How many bytes of a record of `len` bytes are on its own page.
    fn local(&self, len: usize) -> usize {
        let most = self.usable - 35;
        if len <= most {
            return len;
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let filling = least + (len - least) % (self.usable - 4);
        if filling <= most { filling } else { least }
    }

    /// The row in the cell at `cell` of a leaf.
    #[inline]
    fn row(&self, page: &[u8], number: u32, cell: Cell) -> Result<PageRow, &'static str> {
        let len = usize::try_from(cell.len)
            .ok()
            .filter(|&len| len <= self.pages as usize * self.page_size)
            .ok_or("a record is larger than the file")?;
        let local = self.local(len);
        let record = page
            .get(cell.start..cell.start + local)
            .ok_or("a record leaves its page")?;
        let next = if local < len {
            be32(page, cell.start + local).ok_or("a record leaves its page")?
        } else {
            0
        };
        match self.usual_row(record, len, number, cell, next) {
            Some(row) => Ok(row),
            None => self.unusual_row(record, len, number, cell, next),
        }
    }

    /// A row with values of any type and size.
    fn unusual_row(
        &self,
        record: &[u8],
        len: usize,
        number: u32,
        cell: Cell,
        next: u32,
    ) -> Result<PageRow, &'static str> {
        let short = "a record is shorter than its columns";
        let (header_len, mut at) = varint(record, 0).ok_or(short)?;
        let header_len = usize::try_from(header_len).map_err(|_| short)?;
        let header = record.get(..header_len).ok_or(short)?;
        let Columns { topic, time, data } = self.columns;
        let mut row = PageRow {
            id: cell.id,
            topic: None,
            time: None,
            payload: Payload::NONE,
        };
        let mut body = header_len;
        for column in 0..=topic.max(time).max(data) {
            let (kind, after) = varint(header, at).ok_or(short)?;
            at = after;
            let size = size_of(kind).ok_or("a value is of no known type")?;
            let end = body
                .checked_add(size)
                .filter(|&end| end <= len)
                .ok_or(short)?;
            if column == topic {
                row.topic = integer(record, body, kind)?;
            } else if column == time {
                row.time = integer(record, body, kind)?;
            } else if column == data && kind >= 12 {
                let here = record.len().checked_sub(body).ok_or(short)?;
                row.payload = Payload {
                    offset: self.place_of(number).start + cell.start + body,
                    len: u32::try_from(size).map_err(|_| "a payload is too large")?,
                    local: here.min(size) as u32,
                    next: if here < size { next } else { 0 },
                    is_last: end == len,
                };
            }
            body = end;
        }
        Ok(row)
    }

    /// A row as rosbag2 writes nearly all of them: the id, a topic of one byte, a time of eight, a payload.
    #[inline]
    fn usual_row(
        &self,
        record: &[u8],
        len: usize,
        number: u32,
        cell: Cell,
        next: u32,
    ) -> Option<PageRow> {
        let &[header_len, 0, 1, 6, ..] = record else {
            return None;
        };
        let (kind, after) = varint(record, 4)?;
        let header_len = usize::from(header_len);
        if self.columns != Columns::USUAL || after != header_len || kind < 12 {
            return None;
        }
        let &[topic, ref time @ ..] = record.get(header_len..header_len + 9)? else {
            return None;
        };
        let time = i64::from_be_bytes(*time.first_chunk()?);
        let body = header_len + 9;
        let size = usize::try_from((kind - 12) / 2).ok()?;
        // If the record is longer or shorter, the general parser decides.
        if body.checked_add(size)? != len {
            return None;
        }
        let here = record.len() - body;
        Some(PageRow {
            id: cell.id,
            topic: Some(i64::from(topic.cast_signed())),
            time: Some(time),
            payload: Payload {
                offset: self.place_of(number).start + cell.start + body,
                len: u32::try_from(size).ok()?,
                local: here as u32,
                next,
                is_last: true,
            },
        })
    }
}

fn outside(page: u32) -> PageError {
    let what = "it is pointed to, but outside of the file";
    PageError { page, what }
}

/// The rows of a table, sorted by id. Ends after an error.
pub(crate) struct Rows<'a> {
    table: &'a Table,
    file: &'a [u8],
    first: i64,
    last: i64,
    /// The interior pages above the leaf, each with its next child.
    path: Vec<(u32, usize)>,
    leaf: Leaf<'a>,
    /// Pages visited so far: a tree has each page once.
    looked_at: u32,
    behind: Option<i64>,
    has_started: bool,
}

/// A leaf, and its remaining rows.
#[derive(Default)]
struct Leaf<'a> {
    number: u32,
    page: &'a [u8],
    /// The offset of each cell on the page, two bytes each.
    cells: &'a [u8],
}

/// The start of a leaf's cell.
#[derive(Clone, Copy)]
struct Cell {
    len: u64,
    id: i64,
    /// Where the record starts on the page.
    start: usize,
}

impl Rows<'_> {
    /// The page that the last row was on.
    pub fn page(&self) -> u32 {
        self.leaf.number
    }

    /// The next row of the leaf; `None` after its last, and after the last wanted one.
    #[inline]
    fn next_of_leaf(&mut self) -> Option<Result<PageRow, &'static str>> {
        while let Some((at, rest)) = self.leaf.cells.split_first_chunk() {
            self.leaf.cells = rest;
            let Some(cell) = cell(self.leaf.page, u16::from_be_bytes(*at).into()) else {
                return Some(Err("a cell leaves its page"));
            };
            if cell.id < self.first {
                continue;
            }
            if cell.id > self.last {
                self.end();
                return None;
            }
            if self.behind.is_some_and(|behind| behind >= cell.id) {
                return Some(Err("its rows are not in order"));
            }
            self.behind = Some(cell.id);
            return Some(self.table.row(self.leaf.page, self.leaf.number, cell));
        }
        None
    }

    /// Goes on to the next leaf: the next child of the nearest page above that has one.
    #[inline(never)]
    fn next_leaf(&mut self) -> Result<bool, PageError> {
        if !self.has_started {
            self.has_started = true;
            self.descend(self.table.root)?;
            return Ok(true);
        }
        while let Some((number, child)) = self.path.pop() {
            let page = self.table.page(self.file, number)?;
            if let Some(below) =
                child_of(page, child).map_err(|what| PageError { page: number, what })?
            {
                self.path.push((number, child + 1));
                self.descend(below)?;
                self.look_ahead(page, child);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end(&mut self) {
        self.leaf.cells = &[];
        self.path.clear();
        self.has_started = true;
    }

    /// Prefetches what will be read of the next leaves while this one is read: their pages are in no cache yet, and
    /// their cells are scattered over them.
    fn look_ahead(&self, parent: &[u8], child: usize) {
        let leaf = |index| {
            let number = child_of(parent, index).ok().flatten()?;
            self.table.page(self.file, number).ok()
        };
        if let Some(page) = leaf(child + 1) {
            fetch_cells(page);
        }
        if let Some(page) = leaf(child + 3) {
            fetch(page, 0);
            fetch(page, 64);
        }
    }

    /// Descends from a page to the leaf with the first wanted row.
    fn descend(&mut self, mut number: u32) -> Result<(), PageError> {
        loop {
            self.looked_at += 1;
            let refused = |what| PageError { page: number, what };
            if self.looked_at > self.table.pages || self.path.len() > MAX_TREE_DEPTH {
                return Err(refused("the tree has circles"));
            }
            let page = self.table.page(self.file, number)?;
            match page[0] {
                LEAF => {
                    let cells = cells_of(page).ok_or(refused("its cells leave it"))?;
                    self.leaf = Leaf {
                        number,
                        page,
                        cells,
                    };
                    return Ok(());
                }
                INTERIOR => {
                    let cells = usize::from(be16(page, 3).unwrap_or(0));
                    let mut child = 0;
                    while child < cells && key(page, child).map_err(refused)? < self.first {
                        child += 1;
                    }
                    let below = child_of(page, child).map_err(refused)?;
                    self.path.push((number, child + 1));
                    number = below.ok_or(refused("it has no last child"))?;
                }
                _ => return Err(refused("it is not a page of a table")),
            }
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<PageRow, PageError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let refused = match self.next_of_leaf() {
                Some(Ok(row)) => return Some(Ok(row)),
                Some(Err(what)) => PageError {
                    page: self.leaf.number,
                    what,
                },
                None => match self.next_leaf() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(refused) => refused,
                },
            };
            self.end();
            return Some(Err(refused));
        }
    }
}

/// The offsets of the cells of a leaf, two bytes each.
fn cells_of(page: &[u8]) -> Option<&[u8]> {
    page.get(8..8 + 2 * usize::from(be16(page, 3)?))
}

/// Prefetches the start of each cell of a leaf. Most cells end in the next cache line.
fn fetch_cells(page: &[u8]) {
    const START: usize = 24;
    for at in cells_of(page).unwrap_or_default().chunks_exact(2) {
        let at = usize::from(u16::from_be_bytes([at[0], at[1]]));
        fetch(page, at);
        fetch(page, at + START);
    }
}

/// A hint that the byte at `at` is read soon.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    allow(unsafe_code, reason = "there is no safe way to say it")
)]
fn fetch(bytes: &[u8], at: usize) {
    let Some(byte) = bytes.get(at) else { return };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint to the processor, which reads nothing for us and ignores what it cannot reach.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(*byte);
}

/// The start of the cell at `at` of a leaf.
#[inline]
fn cell(page: &[u8], at: usize) -> Option<Cell> {
    let (len, at) = varint(page, at)?;
    let (id, start) = varint(page, at)?;
    let id = id.cast_signed();
    Some(Cell { len, id, start })
}

/// The largest id below child `index` of an interior page, which is not its last.
fn key(page: &[u8], index: usize) -> Result<i64, &'static str> {
    be16(page, 12 + 2 * index)
        .and_then(|at| varint(page, usize::from(at) + 4))
        .map(|(key, _)| key.cast_signed())
        .ok_or("a cell leaves its page")
}

/// Child `index` of an interior page; `None` after the last.
fn child_of(page: &[u8], index: usize) -> Result<Option<u32>, &'static str> {
    let cells = usize::from(be16(page, 3).unwrap_or(0));
    let at = match index.cmp(&cells) {
        std::cmp::Ordering::Less => be16(page, 12 + 2 * index).map(usize::from),
        std::cmp::Ordering::Equal => Some(8),
        std::cmp::Ordering::Greater => return Ok(None),
    };
    let child = at.and_then(|at| be32(page, at));
    child.map(Some).ok_or("a cell leaves its page")
}

/// Bytes of a value, by its type in the record's header.
#[inline]
fn size_of(kind: u64) -> Option<usize> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => Some(kind as usize),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        _ => usize::try_from((kind - 12) / 2).ok(),
    }
}

/// An integer value.
#[inline]
fn integer(record: &[u8], at: usize, kind: u64) -> Result<Option<i64>, &'static str> {
    let size = match kind {
        8 => return Ok(Some(0)),
        9 => return Ok(Some(1)),
        1..=6 => size_of(kind).unwrap_or(8),
        _ => return Ok(None),
    };
    let bytes = at.checked_add(size).and_then(|end| record.get(at..end));
    let bytes = bytes.ok_or("a number is not on its record's page")?;
    let mut wide = if bytes[0] < 0x80 { [0; 8] } else { [0xff; 8] };
    wide[8 - size..].copy_from_slice(bytes);
    Ok(Some(i64::from_be_bytes(wide)))
}

/// A varint of up to nine bytes, and the offset after it.
#[inline]
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    // Nearly all have up to four bytes of seven bits each; the last byte has its highest bit clear.
    if let Some(word) = be32(bytes, at) {
        let before_last = (!word & 0x8080_8080).leading_zeros() / 8;
        if before_last < 4 {
            let bits = word >> (24 - 8 * before_last);
            let value = bits & 0x7f
                | bits >> 1 & 0x7f << 7
                | bits >> 2 & 0x7f << 14
                | bits >> 3 & 0x7f << 21;
            return Some((value.into(), at + before_last as usize + 1));
        }
    }
    long_varint(bytes, at)
}

fn long_varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for index in 0..8 {
        let byte = *bytes.get(at + index)?;
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((value, at + index + 1));
        }
    }
    let last = *bytes.get(at + 8)?;
    Some((value << 8 | u64::from(last), at + 9))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
