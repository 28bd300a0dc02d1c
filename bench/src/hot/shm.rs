//! Between two processes: a scan there and back through shared memory.

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use asof_hot::shm::{Segment, remove};
use asof_hot::{MonoStamp, Ring};
use iceoryx2::prelude::*;

use super::cores::{on_one_core, take_core};
use crate::harness::{Bench, Contender, contender};

type Scan = [u64; 1024];
type Scans = Ring<Scan, 8>;
/// What a child does: `peer full|head name`.
const CHILD: &str = "ASOF_BENCH_HOT_CHILD";
/// The number that ends a child.
const END: u64 = u64::MAX;
const ROUNDS: usize = 40;

pub fn run(bench: &Bench) {
    if bench.wants("shm_rtt_head") {
        bench.case(
            "shm_rtt_head",
            "ns",
            ROUNDS,
            vec![
                peer::<Asof>("asof", false),
                peer::<Iceoryx>("iceoryx2", false),
            ],
        );
    }
    if bench.wants("shm_rtt_8k") {
        bench.case(
            "shm_rtt_8k",
            "ns",
            ROUNDS,
            vec![
                peer::<Asof>("asof", true),
                peer::<Iceoryx>("iceoryx2", true),
            ],
        );
    }
}

/// Runs the other side, if this process was started as it; returns whether it was.
pub fn is_child() -> bool {
    let Ok(what) = std::env::var(CHILD) else {
        return false;
    };
    let mut words = what.split(' ');
    let (name, is_full, link) = (
        words.next(),
        words.next() == Some("full"),
        words.next().unwrap_or_default(),
    );
    take_core(1);
    let played = match name {
        Some("asof") => Asof::open(link, false).map(|link| echo(link, is_full)),
        Some("iceoryx2") => Iceoryx::open(link, false).map(|link| echo(link, is_full)),
        other => Err(format!("no such peer: {other:?}").into()),
    };
    if let Err(error) = played {
        eprintln!("the other side could not start: {error}");
    }
    true
}

/// A way there and a way back, seen from one side.
trait Link: Sized + Send + 'static {
    fn open(name: &str, is_first: bool) -> Result<Self, Box<dyn Error>>;
    fn send(&mut self, fill: impl FnOnce(&mut Scan));
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64>;
    fn remove(_name: &str) {}
}

type Shared = asof_hot::shm::Claimed<Scans>;

struct Asof {
    there: asof_hot::Producer<Scan, 8, asof_hot::Refuse, Shared>,
    back: asof_hot::Consumer<Scan, 8, asof_hot::Refuse, Shared>,
}

impl Link for Asof {
    fn open(name: &str, is_first: bool) -> Result<Self, Box<dyn Error>> {
        let one = Segment::<Scans>::open_or_create(&format!("{name}-1"), ())?;
        let two = Segment::<Scans>::open_or_create(&format!("{name}-2"), ())?;
        let (there, back) = if is_first { (one, two) } else { (two, one) };
        let mut there = there.producer()?;
        if name.ends_with("head") {
            there.fetch_ahead(0);
        }
        Ok(Asof {
            there,
            back: back.consumer()?,
        })
    }
    #[inline(always)]
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) {
        while !self.there.has_room() {
            spin_loop();
        }
        if let Some(mut slot) = self.there.try_write() {
            fill(&mut slot);
            slot.commit(MonoStamp(0));
        }
    }
    #[inline(always)]
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        self.back.try_read().map(|slot| look(&slot))
    }
    fn remove(name: &str) {
        let _ = remove(&format!("{name}-1"));
        let _ = remove(&format!("{name}-2"));
    }
}

type Publisher = iceoryx2::port::publisher::Publisher<ipc_threadsafe::Service, Scan, ()>;
type Subscriber = iceoryx2::port::subscriber::Subscriber<ipc_threadsafe::Service, Scan, ()>;

struct Iceoryx {
    there: Publisher,
    back: Subscriber,
    _node: Node<ipc_threadsafe::Service>,
}

impl Link for Iceoryx {
    fn open(name: &str, is_first: bool) -> Result<Self, Box<dyn Error>> {
        set_log_level(LogLevel::Fatal);
        let node = NodeBuilder::new().create::<ipc_threadsafe::Service>()?;
        let service = |number: u32| {
            let name = format!("{name}-{number}");
            node.service_builder(&name.as_str().try_into()?)
                .publish_subscribe::<Scan>()
                .open_or_create()
                .map_err(Box::<dyn Error>::from)
        };
        let (one, two) = (service(1)?, service(2)?);
        let (there, back) = if is_first { (one, two) } else { (two, one) };
        let there = there.publisher_builder().create()?;
        let back = back.subscriber_builder().create()?;
        Ok(Iceoryx {
            there,
            back,
            _node: node,
        })
    }
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) {
        let mut sample = self.there.loan_uninit().expect("a sample is free");
        // SAFETY: any bytes are a scan; as much as the other side looks at is written.
        unsafe {
            fill(&mut *sample.payload_mut().as_mut_ptr());
            sample.assume_init().send().expect("it is sent");
        }
    }
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        self.back
            .receive()
            .expect("the service is there")
            .map(|sample| look(&sample))
    }
}

#[inline(always)]
fn send(link: &mut impl Link, source: &Scan, number: u64, is_full: bool) {
    link.send(|scan| {
        if is_full {
            scan.copy_from_slice(source);
        }
        scan[0] = number;
    });
}

#[inline(always)]
fn receive(link: &mut impl Link, is_full: bool) -> Option<u64> {
    link.receive(|scan| {
        if is_full {
            black_box(
                scan.iter()
                    .fold(0, |sum: u64, word| sum.wrapping_add(*word)),
            );
        }
        scan[0]
    })
}

/// The other side: answers until it receives the end, and sleeps briefly when nothing comes for a while.
fn echo(mut link: impl Link, is_full: bool) {
    let source = Box::new([3; 1024]);
    let mut last = Instant::now();
    loop {
        for _ in 0..100_000 {
            match receive(&mut link, is_full) {
                Some(END) => return,
                Some(number) => {
                    send(&mut link, &source, number, is_full);
                    last = Instant::now();
                }
                None => spin_loop(),
            }
        }
        if last.elapsed() > Duration::from_secs(20) {
            return;
        }
        if last.elapsed() > Duration::from_millis(1) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// This side, with the other one running.
struct Pair<L: Link> {
    link: Option<L>,
    child: Child,
    name: String,
}

impl<L: Link> Pair<L> {
    fn start(peer: &str, is_full: bool) -> Result<Self, Box<dyn Error>> {
        let amount = if is_full { "full" } else { "head" };
        let name = format!("asof-bench-{}-{peer}-{amount}", std::process::id());
        let mut link = L::open(&name, true)?;
        let child = Command::new(std::env::current_exe()?)
            .arg("hot")
            .env(CHILD, format!("{peer} {amount} {name}"))
            .spawn()?;
        // Until the other side is there, what is sent may be lost.
        let source = Box::new([3; 1024]);
        let start = Instant::now();
        loop {
            send(&mut link, &source, 1, is_full);
            std::thread::sleep(Duration::from_millis(5));
            if receive(&mut link, is_full).is_some() {
                break;
            }
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the other side does not answer".into());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        while receive(&mut link, is_full).is_some() {}
        Ok(Pair {
            link: Some(link),
            child,
            name,
        })
    }
}

impl<L: Link> Drop for Pair<L> {
    fn drop(&mut self) {
        if let Some(link) = &mut self.link {
            send(link, &[0; 1024], END, false);
        }
        std::thread::sleep(Duration::from_millis(50));
        let _ = self.child.kill();
        let _ = self.child.wait();
        L::remove(&self.name);
    }
}

fn peer<L: Link>(name: &'static str, is_full: bool) -> Contender<'static> {
    let mut pair: Option<Pair<L>> = None;
    let count = if is_full { 300 } else { 1500 };
    contender(name, move || {
        if pair.is_none() {
            match Pair::start(name, is_full) {
                Ok(started) => pair = Some(started),
                Err(error) => {
                    eprintln!("{name}: {error}");
                    return f64::NAN;
                }
            }
        }
        let Some(link) = pair.as_mut().and_then(|pair| pair.link.as_mut()) else {
            return f64::NAN;
        };
        // The second core belongs to the other process, so only one side is timed here.
        let source = Box::new([3; 1024]);
        let mut trip = |number| {
            send(link, &source, number, is_full);
            while receive(link, is_full).is_none() {
                spin_loop();
            }
        };
        trip(0); // wakes the other side
        let work = || (0..count).for_each(&mut trip);
        on_one_core(work, count)
    })
}
