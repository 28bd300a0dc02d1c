//! Reassembly of fragmented messages.

use std::collections::HashMap;

/// Fragments that wait for the rest of their message, within bounds.
#[derive(Debug, Default)]
pub struct Fragments {
    pending: HashMap<String, Pending>,
    bytes: usize,
    /// Incremented with each fragment, to find the oldest message.
    clock: u64,
}

#[derive(Debug)]
struct Pending {
    parts: Vec<Option<String>>,
    missing: usize,
    bytes: usize,
    began: u64,
}

/// At most this many incomplete messages.
const MOST_PENDING: usize = 64;
/// At most this many fragments of one message.
const MOST_PARTS: usize = 1 << 20;
/// At most this many bytes of all waiting fragments.
const MOST_BYTES: usize = 256 << 20;

/// Why a fragment cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentError {
    /// Its numbers are inconsistent, or differ from those of earlier fragments.
    #[error("fragment {number} of {total} does not belong to message '{id}'")]
    Number {
        /// The message.
        id: String,
        /// The fragment's number.
        number: usize,
        /// The number of fragments.
        total: usize,
    },
    /// The message exceeds the budget.
    #[error("message '{id}' exceeds the {MOST_BYTES} bytes for incomplete messages")]
    TooLarge {
        /// The message.
        id: String,
    },
}

impl Fragments {
    /// Adds a fragment; returns the complete text once all its fragments are there. When too many messages are
    /// incomplete, the oldest is dropped; `given_up` counts those.
    ///
    /// # Errors
    /// When the fragment does not fit.
    pub fn take(
        &mut self,
        id: &str,
        data: String,
        number: usize,
        total: usize,
        given_up: &mut u64,
    ) -> Result<Option<String>, FragmentError> {
        let wrong = || FragmentError::Number {
            id: id.to_owned(),
            number,
            total,
        };
        if number >= total || total > MOST_PARTS {
            return Err(wrong());
        }
        if data.len() > MOST_BYTES {
            return Err(FragmentError::TooLarge { id: id.to_owned() });
        }
        self.clock += 1;
        let began = self.clock;
        if !self.pending.contains_key(id) && self.pending.len() >= MOST_PENDING {
            self.give_up_oldest(None);
            *given_up += 1;
        }
        // An empty fragment takes memory, too.
        let slot = size_of::<Option<String>>();
        let is_new = !self.pending.contains_key(id);
        let weight = data.len() + if is_new { total * slot } else { 0 };
        while self.bytes + weight > MOST_BYTES {
            if !self.give_up_oldest(Some(id)) {
                self.remove(id);
                return Err(FragmentError::TooLarge { id: id.to_owned() });
            }
            *given_up += 1;
        }
        let pending = self
            .pending
            .entry(id.to_owned())
            .or_insert_with(|| Pending {
                parts: vec![None; total],
                missing: total,
                bytes: 0,
                began,
            });
        if pending.parts.len() != total || pending.parts[number].is_some() {
            return Err(wrong());
        }
        pending.bytes += weight;
        self.bytes += weight;
        pending.parts[number] = Some(data);
        pending.missing -= 1;
        if pending.missing > 0 {
            return Ok(None);
        }
        let whole = self.remove(id).map(|pending| {
            let parts = pending.parts.into_iter().flatten();
            parts.collect::<String>()
        });
        Ok(whole)
    }

    /// Drops all fragments: the connection is gone.
    pub fn clear(&mut self) {
        *self = Fragments::default();
    }

    fn give_up_oldest(&mut self, but: Option<&str>) -> bool {
        let others = self
            .pending
            .iter()
            .filter(|(id, _)| Some(id.as_str()) != but);
        let oldest = others.min_by_key(|(_, pending)| pending.began);
        let Some(id) = oldest.map(|(id, _)| id.clone()) else {
            return false;
        };
        self.remove(&id).is_some()
    }

    fn remove(&mut self, id: &str) -> Option<Pending> {
        let pending = self.pending.remove(id)?;
        self.bytes -= pending.bytes;
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(all: &mut Fragments, id: &str, data: &str, n: usize, of: usize) -> Option<String> {
        let mut given_up = 0;
        let taken = all.take(id, data.to_owned(), n, of, &mut given_up);
        assert_eq!(given_up, 0);
        taken.expect("a part")
    }

    #[test]
    fn parts_come_in_any_order_and_of_several_at_once() {
        let mut all = Fragments::default();
        assert_eq!(take(&mut all, "a", "lo", 1, 2), None);
        assert_eq!(take(&mut all, "b", "x", 0, 3), None);
        assert_eq!(take(&mut all, "a", "hel", 0, 2).as_deref(), Some("hello"));
        assert_eq!(take(&mut all, "b", "z", 2, 3), None);
        assert_eq!(take(&mut all, "b", "y", 1, 3).as_deref(), Some("xyz"));
        assert_eq!((all.bytes, all.pending.len()), (0, 0));
    }

    #[test]
    fn parts_that_cannot_be_are_errors() {
        let mut all = Fragments::default();
        let mut given_up = 0;
        let mut wrong = |number, total| {
            let taken = all.take("a", "x".to_owned(), number, total, &mut given_up);
            assert!(taken.is_err(), "{number} of {total}");
        };
        wrong(2, 2);
        wrong(0, 0);
        wrong(0, usize::MAX);
        assert_eq!(take(&mut all, "a", "x", 0, 2), None);
        let twice = all.take("a", "x".to_owned(), 0, 2, &mut given_up);
        assert!(twice.is_err());
        let other = all.take("a", "x".to_owned(), 1, 3, &mut given_up);
        assert!(other.is_err());
    }

    #[test]
    fn what_never_ends_gives_way_and_is_counted() {
        let mut all = Fragments::default();
        let mut given_up = 0;
        for number in 0..MOST_PENDING + 10 {
            let id = number.to_string();
            let taken = all.take(&id, "x".to_owned(), 0, 2, &mut given_up);
            assert_eq!(taken, Ok(None));
        }
        assert_eq!((given_up, all.pending.len()), (10, MOST_PENDING));
        assert!(!all.pending.contains_key("0"), "the oldest went first");
        let long = "x".repeat(MOST_BYTES / 4);
        for number in 0..8 {
            let id = format!("long {number}");
            drop(all.take(&id, long.clone(), 0, 2, &mut given_up));
            assert!(all.bytes <= MOST_BYTES);
        }
    }
}
