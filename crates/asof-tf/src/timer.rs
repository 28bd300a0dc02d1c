//! Wakes futures at their deadline: one thread for the process, started by the first of them.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::sync::{locked, wake};

/// A waker to be called at a time; cancelled when dropped.
pub(crate) struct Alarm(Key);

type Key = (Instant, u64);

#[derive(Default)]
struct Timer {
    alarms: Mutex<(u64, BTreeMap<Key, Waker>)>,
    changed: Condvar,
}

fn timer() -> &'static Timer {
    static TIMER: OnceLock<Timer> = OnceLock::new();
    static THREAD: OnceLock<bool> = OnceLock::new();
    let timer = TIMER.get_or_init(Timer::default);
    THREAD.get_or_init(|| {
        let thread = std::thread::Builder::new().name("asof-tf-timer".into());
        thread.spawn(move || timer.run()).is_ok()
    });
    timer
}

impl Alarm {
    pub(crate) fn set(at: Instant, waker: Waker) -> Self {
        let timer = timer();
        let mut alarms = locked(&timer.alarms);
        alarms.0 += 1;
        let key = (at, alarms.0);
        let is_first = alarms.1.keys().next().is_none_or(|first| key < *first);
        alarms.1.insert(key, waker);
        drop(alarms);
        if is_first {
            timer.changed.notify_one();
        }
        Alarm(key)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let gone = locked(&timer().alarms).1.remove(&self.0);
        // With no lock held: what it wakes may end with it, and with that another alarm.
        drop(gone);
    }
}

impl Timer {
    fn run(&self) {
        let mut alarms = locked(&self.alarms);
        loop {
            let now = Instant::now();
            let Some(first) = alarms.1.first_entry() else {
                alarms = self
                    .changed
                    .wait(alarms)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let at = first.key().0;
            if at <= now {
                let waker = first.remove();
                drop(alarms);
                wake(waker);
                alarms = locked(&self.alarms);
            } else {
                alarms = self
                    .changed
                    .wait_timeout(alarms, at - now)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }
}
