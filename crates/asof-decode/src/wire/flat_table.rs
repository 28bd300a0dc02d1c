//! FlatBuffers tables, with every offset checked.

/// A table within a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    pub buffer: &'a [u8],
    pub pos: usize,
    vtable: usize,
    vtable_len: usize,
}

impl<'a> Table<'a> {
    /// The root table of a buffer.
    pub fn root(buffer: &'a [u8]) -> Option<Self> {
        Table::behind(buffer, 0)
    }

    /// The table that the offset at `pos` points to.
    pub fn behind(buffer: &'a [u8], pos: usize) -> Option<Self> {
        Table::at(buffer, follow(buffer, pos)?)
    }

    fn at(buffer: &'a [u8], pos: usize) -> Option<Self> {
        let back = word::<4>(buffer, pos).map(i32::from_le_bytes)?;
        let vtable = i64::try_from(pos).ok()? - i64::from(back);
        let vtable = usize::try_from(vtable).ok()?;
        let vtable_len = word::<2>(buffer, vtable).map(u16::from_le_bytes)? as usize;
        buffer.get(vtable..vtable + vtable_len)?;
        Some(Table {
            buffer,
            pos,
            vtable,
            vtable_len,
        })
    }

    /// The position of the field in this slot; `None` where it is absent.
    pub fn field(&self, slot: usize) -> Option<usize> {
        let entry = 4 + 2 * slot;
        if entry + 2 > self.vtable_len {
            return None;
        }
        let offset = word::<2>(self.buffer, self.vtable + entry).map(u16::from_le_bytes)?;
        (offset != 0).then_some(self.pos + offset as usize)
    }

    pub fn u8(&self, slot: usize) -> u8 {
        let at = self.field(slot);
        at.and_then(|at| self.buffer.get(at).copied()).unwrap_or(0)
    }

    pub fn u16(&self, slot: usize) -> u16 {
        let at = self.field(slot);
        at.and_then(|at| word(self.buffer, at))
            .map_or(0, u16::from_le_bytes)
    }

    pub fn i32(&self, slot: usize, default: i32) -> i32 {
        let at = self.field(slot);
        at.and_then(|at| word(self.buffer, at))
            .map_or(default, i32::from_le_bytes)
    }

    pub fn i64(&self, slot: usize) -> i64 {
        let at = self.field(slot);
        at.and_then(|at| word(self.buffer, at))
            .map_or(0, i64::from_le_bytes)
    }

    pub fn f64(&self, slot: usize) -> f64 {
        let at = self.field(slot);
        at.and_then(|at| word(self.buffer, at))
            .map_or(0.0, f64::from_le_bytes)
    }

    pub fn table(&self, slot: usize) -> Option<Table<'a>> {
        Table::behind(self.buffer, self.field(slot)?)
    }

    pub fn text(&self, slot: usize) -> Option<&'a str> {
        let (start, len) = vector(self.buffer, self.field(slot)?)?;
        std::str::from_utf8(self.buffer.get(start..start.checked_add(len)?)?).ok()
    }

    /// The tables of a vector of tables.
    pub fn tables(&self, slot: usize) -> Vec<Table<'a>> {
        let Some((start, len)) = self.field(slot).and_then(|at| vector(self.buffer, at)) else {
            return Vec::new();
        };
        if len > self.buffer.len() / 4 {
            return Vec::new();
        }
        (0..len)
            .map_while(|at| Table::behind(self.buffer, start + 4 * at))
            .collect()
    }
}

/// The target of the offset at `pos`.
pub(crate) fn follow(buffer: &[u8], pos: usize) -> Option<usize> {
    let offset = word::<4>(buffer, pos).map(u32::from_le_bytes)?;
    let target = pos.checked_add(offset as usize)?;
    (target < buffer.len() && offset != 0).then_some(target)
}

/// The start and number of elements of the vector (or string) at the offset at `pos`.
pub(crate) fn vector(buffer: &[u8], pos: usize) -> Option<(usize, usize)> {
    let start = follow(buffer, pos)?;
    let len = word::<4>(buffer, start).map(u32::from_le_bytes)?;
    Some((start + 4, len as usize))
}

pub(crate) fn word<const N: usize>(buffer: &[u8], pos: usize) -> Option<[u8; N]> {
    buffer.get(pos..)?.first_chunk().copied()
}
