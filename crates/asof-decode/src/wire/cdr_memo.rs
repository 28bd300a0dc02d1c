//! Remembers the layouts of recent messages.
//!
//! Most channels of a robot repeat the same lengths of texts and sequences for hours. If every length in a message
//! equals that of an earlier one, the layout is the same: no program is needed, and a whole run of messages is copied
//! column by column. A few layouts are kept, since a list of errors or warnings comes and goes.

use std::collections::BTreeMap;

use crate::columns::{Backing, Columns, Payload, Texts};

/// Observes what a program does to one payload.
pub(super) trait Trace {
    /// A length was read.
    fn guard(&mut self, at: usize, value: u32);
    /// Scalars went to a column.
    fn words(&mut self, width: usize, column: usize, at: usize, count: usize);
    /// Text went to a column; it has this length in the payload, where its last byte may be a terminating zero.
    fn text(&mut self, column: usize, at: usize, len: usize, is_terminated: bool);
    /// Bytes went to a column.
    fn blob(&mut self, column: usize, at: usize, len: usize);
    /// A list of this many elements went to a column.
    fn end(&mut self, column: usize, count: usize);
}

/// Observes nothing.
pub(super) struct NoTrace;

impl Trace for NoTrace {
    #[inline]
    fn guard(&mut self, _: usize, _: u32) {}
    #[inline]
    fn words(&mut self, _: usize, _: usize, _: usize, _: usize) {}
    #[inline]
    fn text(&mut self, _: usize, _: usize, _: usize, _: bool) {}
    #[inline]
    fn blob(&mut self, _: usize, _: usize, _: usize) {}
    #[inline]
    fn end(&mut self, _: usize, _: usize) {}
}

/// A range of a payload.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: u32,
    len: u32,
}

/// Records the position of every value.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    guards: Vec<(u32, u32)>,
    last_bytes: Vec<(u32, bool)>,
    words: BTreeMap<(usize, usize), Vec<Span>>,
    texts: BTreeMap<usize, Vec<Span>>,
    blobs: BTreeMap<usize, Vec<Span>>,
    ends: BTreeMap<usize, Vec<u32>>,
    moves: usize,
}

impl Trace for Recorder {
    fn guard(&mut self, at: usize, value: u32) {
        self.guards.push((at as u32, value));
    }

    fn words(&mut self, width: usize, column: usize, at: usize, count: usize) {
        self.moves += 1;
        let spans = self.words.entry((width, column)).or_default();
        let (at, len) = (at as u32, count as u32);
        match spans.last_mut() {
            Some(last) if last.at + last.len * width as u32 == at => last.len += len,
            _ => spans.push(Span { at, len }),
        }
    }

    fn text(&mut self, column: usize, at: usize, len: usize, is_terminated: bool) {
        self.moves += 1;
        if len > 0 {
            self.last_bytes.push(((at + len - 1) as u32, is_terminated));
        }
        self.texts.entry(column).or_default().push(Span {
            at: at as u32,
            len: (len - usize::from(is_terminated)) as u32,
        });
    }

    fn blob(&mut self, column: usize, at: usize, len: usize) {
        self.moves += 1;
        self.blobs.entry(column).or_default().push(Span {
            at: at as u32,
            len: len as u32,
        });
    }

    fn end(&mut self, column: usize, count: usize) {
        self.moves += 1;
        self.ends.entry(column).or_default().push(count as u32);
    }
}

/// The remembered layouts, and whether remembering pays off.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// The most recently used is the last.
    shapes: Vec<Learned>,
    /// Messages that the memo decoded since it last learned.
    hits: usize,
    /// Messages to skip before the next attempt.
    pause: usize,
    /// The length of the next pause.
    patience: usize,
}

#[derive(Debug)]
struct Learned {
    len: usize,
    /// The encapsulation, where there is one.
    head: Option<[u8; 2]>,
    guards: Vec<(u32, u32)>,
    /// Where each text ends, and whether its last byte is a terminating zero, which is no part of it.
    last_bytes: Vec<(u32, bool)>,
    words: Vec<(usize, usize, Vec<Span>)>,
    texts: Vec<(usize, Vec<Span>)>,
    blobs: Vec<(usize, Vec<Span>)>,
    ends: Vec<(usize, Vec<u32>)>,
    /// The most that one message adds to the offsets of a column.
    growth: usize,
}

/// A message with more parts than this is not worth remembering.
const MOVES_AT_MOST: usize = 4096;
const LONGEST_PAUSE: usize = 1024;
/// The most layouts; the least recently used is replaced.
const SHAPES: usize = 4;
/// A memo that decoded fewer messages than this since it last learned did not pay off.
const HITS_THAT_PAY: usize = 4;
/// The bytes that are copied at once: half of a core's first-level cache.
const TILE_BYTES: usize = 16 << 10;

impl Memo {
    /// How many payloads at the front of a run have the remembered layout, and fit into the columns.
    pub fn matching(&mut self, run: &[Payload<'_>], columns: &Columns) -> usize {
        let Some(first) = run.first() else { return 0 };
        let fitting = self
            .shapes
            .iter()
            .rposition(|shape| shape.fits(first.bytes));
        let Some(at) = fitting else { return 0 };
        self.shapes[at..].rotate_left(1);
        let Some(shape) = self.shapes.last() else {
            return 0;
        };
        // What may not fit into the offsets is left to the program, which checks each message.
        let most = shape.room(columns) / shape.growth.max(1);
        let fitting = run.iter().take(most).skip(1);
        let fitting = fitting.take_while(|payload| shape.fits(payload.bytes));
        most.min(1 + fitting.count())
    }

    /// Whether the next message that does not fit should be remembered.
    pub fn wants_to_learn(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        true
    }

    pub fn learn(&mut self, recorder: Recorder, payload: &[u8], has_head: bool) {
        // A memo with few hits does not learn for a while: lengths that always change are decoded by the program,
        // which costs less than remembering each.
        if !self.shapes.is_empty() && self.hits < HITS_THAT_PAY {
            self.patience = (2 * self.patience + 1).min(LONGEST_PAUSE);
            self.pause = self.patience;
        } else {
            self.patience = 0;
        }
        self.hits = 0;
        let head = payload.first_chunk().copied().filter(|_| has_head);
        if recorder.moves > MOVES_AT_MOST {
            self.pause = LONGEST_PAUSE;
            return;
        }
        if self.shapes.len() == SHAPES {
            self.shapes.remove(0);
        }
        let lists = recorder.ends.values().map(|counts| {
            let counts = counts.iter().map(|count| *count as usize);
            counts.fold(0, usize::saturating_add)
        });
        self.shapes.push(Learned {
            growth: lists.fold(payload.len(), usize::max),
            len: payload.len(),
            head,
            guards: recorder.guards,
            last_bytes: recorder.last_bytes,
            words: recorder
                .words
                .into_iter()
                .map(|((width, column), spans)| (width, column, spans))
                .collect(),
            texts: recorder.texts.into_iter().collect(),
            blobs: recorder.blobs.into_iter().collect(),
            ends: recorder.ends.into_iter().collect(),
        });
    }

    /// Copies a run of payloads that all fit, column by column, a few at a time: they stay in the first-level cache
    /// until all of their columns are copied.
    pub fn transpose(&mut self, run: &[Payload<'_>], columns: &mut Columns) {
        let Some(shape) = self.shapes.last() else {
            return;
        };
        self.hits += run.len();
        let tile = (TILE_BYTES / shape.len.max(1)).clamp(8, 1024);
        for tile in run.chunks(tile) {
            shape.transpose(tile, columns);
        }
    }
}

impl Learned {
    fn transpose(&self, run: &[Payload<'_>], columns: &mut Columns) {
        let shape = self;
        for (width, column, spans) in &shape.words {
            match width {
                1 => move_bytes(&mut columns.w1[*column], spans, run),
                2 => move_words(&mut columns.w2[*column], spans, run, u16::from_le_bytes),
                4 => move_words(&mut columns.w4[*column], spans, run, u32::from_le_bytes),
                _ => move_words(&mut columns.w8[*column], spans, run, u64::from_le_bytes),
            }
        }
        for (column, spans) in &shape.texts {
            let texts = &mut columns.texts[*column];
            move_texts(texts, spans, run);
        }
        for (column, spans) in &shape.blobs {
            let blobs = &mut columns.blobs[*column];
            for payload in run {
                let place = Backing {
                    owner: payload.owner,
                };
                for span in spans {
                    blobs.push(span.of(payload.bytes, 1), span.at as usize, place);
                }
            }
        }
        for (column, counts) in &shape.ends {
            let ends = &mut columns.ends[*column];
            let mut last = ends.last().copied().unwrap_or(0);
            ends.reserve(run.len() * counts.len());
            for _ in run {
                for count in counts {
                    last += *count as i32;
                    ends.push(last);
                }
            }
        }
    }

    /// What is left of the 31 bits of the fullest column's offsets.
    fn room(&self, columns: &Columns) -> usize {
        let ends = self.ends.iter().map(|(column, _)| &columns.ends[*column]);
        let texts = self.texts.iter().map(|(column, _)| &columns.texts[*column]);
        let last = ends.chain(texts.map(|texts| &texts.ends));
        let fullest = last.filter_map(|ends| ends.last()).max();
        (i32::MAX - fullest.copied().unwrap_or(0)) as usize
    }

    #[inline]
    fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.len
            && self.head.is_none_or(|head| payload.starts_with(&head))
            && self
                .guards
                .iter()
                .all(|&(at, value)| word_at(payload, at as usize) == Some(value))
            && self
                .last_bytes
                .iter()
                .all(|&(at, is_zero)| (payload[at as usize] == 0) == is_zero)
    }
}

#[inline]
fn word_at(payload: &[u8], at: usize) -> Option<u32> {
    payload
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
}

impl Span {
    #[inline]
    fn of(self, payload: &[u8], width: usize) -> &[u8] {
        let at = self.at as usize;
        &payload[at..at + self.len as usize * width]
    }
}

/// Short texts are copied in blocks of one length, which does not need a call; the excess of a block is truncated.
const BLOCK: usize = 32;

fn move_texts(texts: &mut Texts, spans: &[Span], run: &[Payload<'_>]) {
    let each: usize = spans.iter().map(|span| span.len as usize).sum();
    texts.data.reserve(each * run.len() + BLOCK);
    texts.ends.reserve(spans.len() * run.len());
    for payload in run {
        for span in spans {
            let (from, len) = (span.at as usize, span.len as usize);
            let end = texts.data.len() + len;
            let block = payload.bytes[from..].first_chunk::<BLOCK>();
            match block.filter(|_| len <= BLOCK) {
                Some(block) => {
                    texts.data.extend_from_slice(block);
                    texts.data.truncate(end);
                }
                None => texts.data.extend_from_slice(span.of(payload.bytes, 1)),
            }
            texts.ends.push(end as i32);
        }
    }
}

fn move_bytes(column: &mut Vec<u8>, spans: &[Span], run: &[Payload<'_>]) {
    for payload in run {
        for span in spans {
            column.extend_from_slice(span.of(payload.bytes, 1));
        }
    }
}

#[inline]
fn move_words<const N: usize, T>(
    column: &mut Vec<T>,
    spans: &[Span],
    run: &[Payload<'_>],
    word: fn([u8; N]) -> T,
) {
    let first = |bytes: &[u8]| bytes.first_chunk().copied().unwrap_or([0; N]);
    if let [Span { at, len: 1 }] = spans {
        let at = *at as usize;
        column.extend(run.iter().map(|p| word(first(&p.bytes[at..]))));
        return;
    }
    let total: usize = spans.iter().map(|span| span.len as usize).sum();
    column.reserve(total * run.len());
    for payload in run {
        for span in spans {
            if span.len == 1 {
                column.push(word(first(&payload.bytes[span.at as usize..])));
            } else {
                let (words, _) = span.of(payload.bytes, N).as_chunks();
                column.extend(words.iter().map(|bytes| word(*bytes)));
            }
        }
    }
}
