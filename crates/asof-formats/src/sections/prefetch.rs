//! Sections prefetched for their reader, in order.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use asof_core::SourceError;
use bytes::Bytes;

use super::{Loaded, SectionQuery, Sections};
use crate::buffers::Expected;
use crate::cores::start_elsewhere;

/// Loads the sections of a plan, in the plan's order, on other threads where that pays.
///
/// The reader is one of the threads: instead of waiting, it loads the next unclaimed section. So it rarely sleeps, and
/// no thread has to be woken for a section that is needed at once; waking takes longer than loading a small section,
/// especially on a busy machine.
///
/// As many sections as the file allows, and at most [`BYTES_AHEAD`] for each thread unless a single one is larger, are
/// loaded and not yet taken. Dropping it stops each thread after its current section.
pub(crate) struct Prefetch {
    shared: Arc<Shared>,
    /// Returned buffers are kept while this reads.
    _expected: Option<Expected>,
}

/// Bytes that may be loaded and not yet taken, or loading: for each thread, and in total. A chunk of images or point
/// clouds has four megabytes and more. With room for less than one per thread, threads wait for the reader, however
/// many cores there are.
const BYTES_AHEAD: u64 = 8 << 20;
const BYTES_AHEAD_AT_MOST: u64 = 64 << 20;
/// Plans shorter than this are not worth a thread.
const MIN_PLAN_FOR_THREAD: usize = 3;

struct Shared {
    file: Arc<dyn Sections>,
    wanted: SectionQuery,
    plan: Vec<usize>,
    state: Mutex<State>,
    /// Signalled when there is room for more sections, or no more are wanted.
    room: Condvar,
    /// Signalled when the section that the reader waits for is loaded.
    ready: Condvar,
    bytes_ahead_at_most: u64,
}

#[derive(Default)]
struct State {
    /// The next index of the plan that no thread works on.
    next: usize,
    /// The next index of the plan to be taken.
    taken: usize,
    loaded: BTreeMap<usize, Result<Loaded, SourceError>>,
    bytes_ahead: u64,
    /// The index that the reader waits for.
    waited_for: Option<usize>,
    /// Workers that wait for room.
    idle: usize,
    /// Workers that are loading a section.
    busy: usize,
    is_closed: bool,
}

impl Prefetch {
    pub fn new(file: &Arc<dyn Sections>, wanted: SectionQuery, plan: Vec<usize>) -> Self {
        let threads = if plan.len() < MIN_PLAN_FOR_THREAD {
            1
        } else {
            file.threads().min(plan.len())
        };
        let bytes_ahead_at_most = (threads as u64 * BYTES_AHEAD).min(BYTES_AHEAD_AT_MOST);
        // Besides what is loaded ahead, the caller holds one section.
        let in_flight = bytes_ahead_at_most + BYTES_AHEAD;
        let pool = file.buffers().filter(|_| threads > 1);
        let expected = pool.map(|pool| pool.expect(in_flight as usize));
        let shared = Arc::new(Shared {
            file: Arc::clone(file),
            wanted,
            plan,
            state: Mutex::default(),
            room: Condvar::new(),
            ready: Condvar::new(),
            bytes_ahead_at_most,
        });
        for _ in 1..threads {
            // Weak: a worker that starts after the end finds nothing, and is not waited for.
            let worker = Arc::downgrade(&shared);
            let work = move || Weak::upgrade(&worker).inspect(|shared| shared.work());
            let name = "asof-read".to_owned();
            match std::thread::Builder::new().name(name).spawn(work) {
                Ok(worker) => start_elsewhere(&worker),
                // Fewer workers suffice, or the reader alone.
                Err(_) => break,
            }
        }
        Prefetch {
            shared,
            _expected: expected,
        }
    }

    /// The next section of the plan; `None` when all were taken.
    pub fn next(&mut self) -> Option<Result<Loaded, SourceError>> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let place = state.taken;
        if place >= shared.plan.len() {
            return None;
        }
        state.taken += 1;
        loop {
            if let Some(result) = state.loaded.remove(&place) {
                state.bytes_ahead -= shared.bytes_of(place);
                let is_time_to_wake = shared.is_time_to_wake(&state);
                // The woken thread takes the lock.
                drop(state);
                if is_time_to_wake {
                    shared.room.notify_all();
                }
                return Some(result);
            }
            state = if let Some(other) = shared.claim(&mut state) {
                drop(state);
                let result = shared.load(other);
                let mut state = shared.lock();
                state.loaded.insert(other, result);
                state
            } else {
                // Another thread is loading it.
                state.waited_for = Some(place);
                let mut state = shared
                    .ready
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.waited_for = None;
                state
            };
        }
    }

    /// A section that was taken before, loaded again.
    pub fn load_again(&self, section: usize) -> Result<Loaded, SourceError> {
        self.shared.file.load(section, &self.shared.wanted)
    }

    /// Its buffers alone, each at least up to `end`.
    pub fn reload(&self, section: usize, end: u64) -> Result<Vec<Bytes>, SourceError> {
        self.shared.file.reload(section, &self.shared.wanted, end)
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        self.shared.room.notify_all();
        while state.busy > 0 {
            state = self
                .shared
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(place) = self.claim_with_room() {
            let result = self.load(place);
            let mut state = self.lock();
            state.busy -= 1;
            state.loaded.insert(place, result);
            let is_waited_for = state.waited_for == Some(place) || state.is_closed;
            drop(state);
            if is_waited_for {
                self.ready.notify_one();
            }
        }
    }

    /// A panic becomes an error of this section, so that the reader does not wait forever.
    fn load(&self, place: usize) -> Result<Loaded, SourceError> {
        let load = AssertUnwindSafe(|| self.file.load(self.plan[place], &self.wanted));
        catch_unwind(load).unwrap_or_else(|_| {
            Err(SourceError::Unreadable {
                place: self.file.name().to_owned(),
                reason: "reading it failed".to_owned(),
            })
        })
    }

    /// The next index to load, if there is room for it.
    fn claim(&self, state: &mut State) -> Option<usize> {
        let place = state.next;
        if place >= self.plan.len() {
            return None;
        }
        let bytes = self.bytes_of(place);
        if self.file.is_unlikely(self.plan[place]) && place >= state.taken {
            return None;
        }
        // A section that the reader waits for is loaded whatever its size.
        let is_first = place <= state.taken;
        let has_room = place < state.taken + self.file.sections_ahead()
            && state.bytes_ahead + bytes <= self.bytes_ahead_at_most;
        (is_first || has_room).then(|| {
            state.next += 1;
            state.bytes_ahead += bytes;
            place
        })
    }

    /// The next index to load, once there is room for it; `None` when nothing is left to do.
    fn claim_with_room(&self) -> Option<usize> {
        let mut state = self.lock();
        while !state.is_closed && state.next < self.plan.len() {
            if let Some(place) = self.claim(&mut state) {
                state.busy += 1;
                return Some(place);
            }
            state.idle += 1;
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        None
    }

    /// Workers are woken when there is room for several sections: waking for each costs more than loading it.
    fn is_time_to_wake(&self, state: &State) -> bool {
        let ahead = state.next.saturating_sub(state.taken);
        state.idle > 0 && ahead <= self.file.sections_ahead() / 2
    }

    fn bytes_of(&self, place: usize) -> u64 {
        self.file.expected_bytes(self.plan[place])
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use asof_core::{Channel, Row, Stamp, TimeRange, Topics};

    use super::*;

    /// Sections of one message each, loaded after varying delays; one of them panics.
    #[derive(Default)]
    struct Slow {
        threads: usize,
        bytes: u64,
        broken: Option<usize>,
        taken: AtomicUsize,
        furthest: AtomicUsize,
    }

    impl Sections for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn threads(&self) -> usize {
            self.threads
        }

        fn range_of(&self, _: usize) -> TimeRange {
            TimeRange::ALL
        }

        fn expected_bytes(&self, _: usize) -> u64 {
            self.bytes
        }

        fn section_count(&self) -> usize {
            60
        }

        fn may_hold(&self, _: usize, _: &SectionQuery) -> bool {
            true
        }

        fn load(&self, section: usize, _: &SectionQuery) -> Result<Loaded, SourceError> {
            let ahead = section.saturating_sub(self.taken.load(SeqCst));
            self.furthest.fetch_max(ahead, SeqCst);
            assert_ne!(self.broken, Some(section));
            std::thread::sleep(Duration::from_micros(section as u64 * 37 % 400));
            let row = Row {
                log_time: Stamp::from_nanos(section as i64),
                publish_time: Stamp::MIN,
                order: 0,
                offset: 0,
                len: 0,
                sequence: 0,
                channel: 0,
                buffer: 0,
            };
            Ok(Loaded::of(Bytes::new(), vec![row]))
        }

        fn channels(&self) -> Arc<[Arc<Channel>]> {
            Arc::default()
        }
    }

    /// The result of each section, in order, and how far ahead of the reader any thread was.
    fn read(file: Slow) -> (Vec<Result<i64, String>>, usize) {
        let file = Arc::new(file);
        let sections: Arc<dyn Sections> = Arc::<Slow>::clone(&file);
        let wanted = SectionQuery::new(Topics::All, TimeRange::ALL, &[]);
        let mut prefetch = Prefetch::new(&sections, wanted, (0..60).collect());
        let mut found = Vec::new();
        while let Some(loaded) = prefetch.next() {
            file.taken.fetch_add(1, SeqCst);
            let time = loaded.map(|loaded| loaded.rows[0].log_time.nanos());
            found.push(time.map_err(|error| error.to_string()));
        }
        (found, file.furthest.load(SeqCst))
    }

    #[test]
    fn sections_come_in_order_from_all_threads() {
        for threads in 1..6 {
            let (found, furthest) = read(Slow {
                threads,
                ..Slow::default()
            });
            assert!(found.into_iter().eq((0..60).map(Ok)));
            assert!(furthest <= threads + 2, "{furthest} ahead");
        }
    }

    #[test]
    fn large_sections_are_not_heaped_up() {
        let (found, furthest) = read(Slow {
            threads: 4,
            bytes: BYTES_AHEAD_AT_MOST,
            ..Slow::default()
        });
        assert_eq!(found.len(), 60);
        assert!(furthest <= 2, "{furthest} ahead");
    }

    /// Sections of images: each finishes only once enough others are loading at the same time, or after a timeout.
    struct Together {
        bytes: u64,
        at_once: Mutex<(usize, usize)>,
        changed: Condvar,
    }

    impl Sections for Together {
        fn name(&self) -> &'static str {
            "together"
        }

        fn threads(&self) -> usize {
            8
        }

        fn range_of(&self, _: usize) -> TimeRange {
            TimeRange::ALL
        }

        fn expected_bytes(&self, _: usize) -> u64 {
            self.bytes
        }

        fn section_count(&self) -> usize {
            24
        }

        fn may_hold(&self, _: usize, _: &SectionQuery) -> bool {
            true
        }

        fn load(&self, _: usize, _: &SectionQuery) -> Result<Loaded, SourceError> {
            let mut at_once = self.at_once.lock().unwrap();
            at_once.0 += 1;
            at_once.1 = at_once.1.max(at_once.0);
            self.changed.notify_all();
            let is_alone = |at_once: &mut (usize, usize)| at_once.1 < 8;
            let patience = Duration::from_secs(20);
            let waited = self.changed.wait_timeout_while(at_once, patience, is_alone);
            waited.unwrap().0.0 -= 1;
            Ok(Loaded::default())
        }

        fn channels(&self) -> Arc<[Arc<Channel>]> {
            Arc::default()
        }
    }

    #[test]
    fn every_thread_has_a_chunk_of_pictures_to_work_on() {
        let file = Arc::new(Together {
            bytes: 6 << 20,
            at_once: Mutex::default(),
            changed: Condvar::new(),
        });
        let sections: Arc<dyn Sections> = Arc::<Together>::clone(&file);
        let wanted = SectionQuery::new(Topics::All, TimeRange::ALL, &[]);
        let mut prefetch = Prefetch::new(&sections, wanted, (0..24).collect());
        while prefetch.next().is_some() {}
        assert_eq!(file.at_once.lock().unwrap().1, 8);
    }

    #[test]
    fn a_panic_is_an_error_of_its_section_alone() {
        for threads in [1, 3] {
            let (found, _) = read(Slow {
                threads,
                broken: Some(7),
                ..Slow::default()
            });
            assert_eq!(found.len(), 60);
            assert!(found[7].is_err());
            assert_eq!(found.iter().filter(|found| found.is_err()).count(), 1);
        }
    }
}
