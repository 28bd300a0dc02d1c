//! Messages whose writers discovery has not reported yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a writer may take to be reported after its first message.
const PATIENCE: Duration = Duration::from_secs(5);
/// At most this many messages of a topic wait for that, and so many bytes beside the newest.
const MOST: usize = 256;
const MOST_BYTES: usize = 64 << 20;

/// Messages in the order of their arrival, until it is known whose they are. DDS matches readers to a writer before it lists
/// the writer, and what a writer keeps for late joiners comes once.
#[derive(Debug)]
pub(super) struct EarlyMessages<M> {
    waiting: VecDeque<(Instant, usize, M)>,
    bytes: usize,
}

impl<M> EarlyMessages<M> {
    pub fn new() -> Self {
        EarlyMessages {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn push(&mut self, now: Instant, bytes: usize, message: M) {
        self.bytes += bytes;
        self.waiting.push_back((now, bytes, message));
    }

    /// Passes on the messages that `is_ours` says are for this reader, drops those for others, and keeps those of writers
    /// that are not known yet. Returns how many were given up.
    pub fn settle(
        &mut self,
        now: Instant,
        mut is_ours: impl FnMut(&M) -> Option<bool>,
        mut pass: impl FnMut(M),
    ) -> u64 {
        let mut given_up = 0;
        for (came, bytes, message) in std::mem::take(&mut self.waiting) {
            match is_ours(&message) {
                Some(is_ours) => {
                    self.bytes -= bytes;
                    if is_ours {
                        pass(message);
                    }
                }
                None if now.saturating_duration_since(came) >= PATIENCE => {
                    self.bytes -= bytes;
                    given_up += 1;
                }
                None => self.waiting.push_back((came, bytes, message)),
            }
        }
        while self.waiting.len() > MOST || (self.waiting.len() > 1 && self.bytes > MOST_BYTES) {
            if let Some((_, bytes, _)) = self.waiting.pop_front() {
                self.bytes -= bytes;
                given_up += 1;
            }
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer and the number of its message.
    type Message = (char, u32);

    fn settle(
        early: &mut EarlyMessages<Message>,
        now: Instant,
        known: &[(char, bool)],
    ) -> (Vec<Message>, u64) {
        let mut passed = Vec::new();
        let find = |message: &Message| {
            let found = known.iter().find(|(writer, _)| *writer == message.0);
            found.map(|(_, is_ours)| *is_ours)
        };
        let given_up = early.settle(now, find, |message| passed.push(message));
        (passed, given_up)
    }

    #[test]
    fn what_comes_before_its_writer_is_known_is_passed_on_in_order() {
        let (mut early, now) = (EarlyMessages::new(), Instant::now());
        for message in [('a', 1), ('b', 1), ('a', 2), ('c', 1)] {
            early.push(now, 10, message);
        }
        assert_eq!(settle(&mut early, now, &[('b', true)]), (vec![('b', 1)], 0));
        early.push(now, 10, ('a', 3));
        let (passed, given_up) = settle(&mut early, now, &[('a', true), ('c', false)]);
        assert_eq!((passed, given_up), (vec![('a', 1), ('a', 2), ('a', 3)], 0));
        assert!(early.is_empty(), "what is for another reader is not kept");
        assert_eq!(early.bytes, 0);
    }

    #[test]
    fn what_belongs_to_nobody_is_given_up_and_counted() {
        let (mut early, now) = (EarlyMessages::new(), Instant::now());
        early.push(now, 10, ('a', 1));
        early.push(now + PATIENCE, 10, ('a', 2));
        assert_eq!(settle(&mut early, now + PATIENCE, &[]), (vec![], 1));
        for number in 0..2_000 {
            early.push(now + PATIENCE, 10, ('b', number));
        }
        assert_eq!(settle(&mut early, now + PATIENCE, &[]).1, 1_745);
        assert_eq!(early.waiting.len(), MOST);
        for number in 0..3 {
            early.push(now + PATIENCE, MOST_BYTES, ('c', number));
        }
        settle(&mut early, now + PATIENCE, &[]);
        let (passed, _) = settle(&mut early, now + PATIENCE, &[('c', true)]);
        assert_eq!(passed, [('c', 2)], "the newest is kept, however large");
        assert_eq!(early.bytes, 0);
    }
}
