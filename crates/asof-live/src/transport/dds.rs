//! DDS: topics by the discovery of its writers (SEDP), one reader for each key that is subscribed.
//!
//! One thread does it all: it looks at what was discovered, makes readers, and takes what they received. DDS itself has
//! threads of its own for the network. A reader is BEST_EFFORT, so that it costs the robot nothing, except where writers
//! keep messages for late joiners: those are asked for reliably.

mod descriptions;
mod directory;
mod interface;
mod nodes;
mod raw;
mod reader;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use asof_core::Problem;
use parking_lot::Mutex;
use rustdds::mio1::event::Event;
use rustdds::mio1::{Events, Interest, Poll, Token, Waker};
use rustdds::{
    DomainParticipant, DomainParticipantBuilder, DomainParticipantStatusListener, QosPolicies,
    StatusEvented, Subscriber,
};

use self::descriptions::Descriptions;
use self::directory::Directory;
use self::nodes::Nodes;
use self::reader::{Manner, Reader, Wanted};
use super::{Held, Losses, Transport, incomplete};
use crate::graph::{Graph, Origin};
use crate::ros::QosOverride;
use crate::subscribe::Callback;
use crate::{DdsAddress, LiveError, Publisher, RobotInfo};

pub(crate) use self::directory::DdsTopic;

/// What was discovered is looked at this often, even if nothing was heard of it: events may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Every reader is looked at this often, even if nothing was heard of it.
const GLANCE_EVERY: Duration = Duration::from_secs(1);
/// Discovery drops what is announced faster than it can say; so readers are made in groups, with a pause after each.
const READERS_AT_ONCE: usize = 25;
const READER_PAUSE: Duration = Duration::from_millis(10);
/// A reader that cannot be made is tried again for this long.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Four handles of the system for each reader, and then some.
const HANDLES: u64 = 65_536;

const WAKE: Token = Token(0);
const DISCOVERED: Token = Token(1);
const NODES: Token = Token(2);
const FIRST_READER: usize = 16;

/// A participant in a domain.
pub(crate) struct DdsTransport {
    place: String,
    domain: u16,
    shared: Arc<Shared>,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    next: AtomicUsize,
    thread: Option<JoinHandle<()>>,
}

/// What the thread tells those who ask.
#[derive(Default)]
pub(super) struct Shared {
    pub losses: Losses,
    pub told: Mutex<Told>,
}

#[derive(Default)]
pub(super) struct Told {
    /// Writers of topics.
    pub writers: usize,
    /// Processes on the network.
    pub participants: usize,
    /// Nodes that describe their types.
    pub describers: usize,
    /// Topics whose writers do not announce the hash of their type.
    pub without_hash: usize,
    /// Writers and readers of the robot that do not hear each other, as sentences by topic.
    pub mismatches: Vec<(String, String)>,
    /// Messages that are missing in the numbers of their writers, by topic.
    pub lost: BTreeMap<String, u64>,
    /// Topics that could not be subscribed, and why.
    pub refused: BTreeMap<String, String>,
    /// The nodes that publish each topic.
    pub publishers: BTreeMap<String, Vec<String>>,
}

enum Command {
    Subscribe(Wanted),
    Drop(usize),
    End,
}

impl DdsTransport {
    pub fn open(address: &DdsAddress, graph: &Arc<Graph>) -> Result<Self, LiveError> {
        let address = address.in_environment(|name| std::env::var(name).ok())?;
        let domain = address.domain.unwrap_or(0);
        let dds = |cause: String| LiveError::Dds {
            what: format!("cannot join domain {domain}"),
            cause,
        };
        raise_limit();
        let mut builder = DomainParticipantBuilder::new(domain);
        if let Some(name) = &address.interface {
            builder = builder.with_only_networks(interface::numbers_of(name)?);
        }
        let participant = builder.build().map_err(|cause| dds(cause.to_string()))?;
        let (commands, received) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let worker = Worker::new(participant, graph, received, &shared);
        let (worker, waker) = worker.map_err(|cause| dds(cause.to_string()))?;
        let thread = thread::Builder::new()
            .name("asof-live dds".to_owned())
            .spawn(move || worker.run())
            .map_err(LiveError::Thread)?;
        Ok(DdsTransport {
            place: address.to_string(),
            domain,
            shared,
            commands,
            waker,
            next: AtomicUsize::new(FIRST_READER),
            thread: Some(thread),
        })
    }
}

impl Drop for DdsTransport {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::End);
        let _ = self.waker.wake();
        // The last session may be dropped within a callback, which is on that very thread.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Transport for DdsTransport {
    fn is_connected(&self) -> bool {
        self.shared.told.lock().participants > 0
    }

    fn subscribe(
        &self,
        publisher: &Publisher,
        asked: QosOverride,
        callback: Callback,
    ) -> Result<Held, LiveError> {
        let Origin::Dds(topic) = &publisher.origin else {
            return Err(LiveError::NoKeys {
                key: publisher.key.clone(),
            });
        };
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let is_alive = Arc::new(AtomicBool::new(true));
        let wanted = Wanted {
            token: Token(token),
            topic: Arc::clone(topic),
            described: Arc::clone(&publisher.described),
            manner: Manner::of(topic, publisher.qos.unwrap_or_default(), asked),
            callback,
            asked: Instant::now(),
            is_alive: Arc::clone(&is_alive),
        };
        // The thread is gone only when the session is.
        let _ = self.commands.send(Command::Subscribe(wanted));
        let _ = self.waker.wake();
        Ok(Box::new(Ticket {
            token,
            is_alive,
            commands: self.commands.clone(),
            waker: Arc::clone(&self.waker),
        }))
    }

    fn domain(&self) -> u32 {
        u32::from(self.domain)
    }

    fn info(&self) -> RobotInfo {
        let told = self.shared.told.lock();
        let details = [
            ("domain", self.domain.to_string()),
            ("participants", told.participants.to_string()),
            ("writers", told.writers.to_string()),
            ("topics without a type hash", told.without_hash.to_string()),
            (
                "nodes that describe their types",
                told.describers.to_string(),
            ),
        ];
        let details = details.map(|(name, value)| (name.to_owned(), value));
        RobotInfo {
            name: "DDS".to_owned(),
            details: details.into_iter().collect(),
            publishers: told.publishers.clone(),
            ..RobotInfo::default()
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = self.shared.losses.problems(&self.place);
        let told = self.shared.told.lock();
        for (topic, count) in &told.lost {
            let text = format!(
                "{count} messages are missing in the numbers of their writers: they were lost on the way, or came faster than \
                 they were taken"
            );
            problems.push(incomplete(text).on_topic(topic));
        }
        for (topic, cause) in &told.refused {
            let text = format!("it cannot be subscribed: {cause}");
            problems.push(incomplete(text).on_topic(topic));
        }
        for (topic, text) in &told.mismatches {
            problems.push(directory::mismatch(text).on_topic(topic));
        }
        problems
    }
}

/// A subscription; dropping it ends it.
struct Ticket {
    token: usize,
    is_alive: Arc<AtomicBool>,
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.is_alive.store(false, Ordering::Release);
        let _ = self.commands.send(Command::Drop(self.token));
        let _ = self.waker.wake();
    }
}

/// What the thread has.
struct Worker {
    // Readers go before the participant that they are of.
    readers: HashMap<Token, Reader>,
    nodes: Nodes,
    descriptions: Descriptions,
    subscriber: Subscriber,
    listener: DomainParticipantStatusListener,
    participant: DomainParticipant,
    poll: Poll,
    received: Receiver<Command>,
    /// Readers that are still to be made.
    waiting: VecDeque<Wanted>,
    directory: Directory,
    shared: Arc<Shared>,
    looked: Instant,
    glanced: Instant,
    /// Whether something was discovered since it was last looked at.
    is_news: bool,
}

impl Worker {
    fn new(
        participant: DomainParticipant,
        graph: &Arc<Graph>,
        received: Receiver<Command>,
        shared: &Arc<Shared>,
    ) -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let mut listener = participant.status_listener();
        poll.registry().register(
            listener.as_status_source_mio1(),
            DISCOVERED,
            Interest::READABLE,
        )?;
        let failed = |cause: rustdds::dds::CreateError| io::Error::other(cause.to_string());
        let subscriber = participant
            .create_subscriber(&QosPolicies::qos_none())
            .map_err(failed)?;
        let mut nodes = Nodes::new(&participant, &subscriber).map_err(failed)?;
        nodes.register(&poll, NODES)?;
        let descriptions = Descriptions::new(&participant).map_err(failed)?;
        let worker = Worker {
            readers: HashMap::new(),
            nodes,
            descriptions,
            subscriber,
            listener,
            participant,
            poll,
            received,
            waiting: VecDeque::new(),
            directory: Directory::new(Weak::clone(&Arc::downgrade(graph))),
            shared: Arc::clone(shared),
            looked: Instant::now(),
            glanced: Instant::now(),
            is_news: true,
        };
        Ok((worker, waker))
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            let is_idle = self.waiting.is_empty() && !self.is_news && !self.descriptions.is_busy();
            let timeout = if is_idle { POLL_INTERVAL } else { READER_PAUSE };
            if let Err(cause) = self.poll.poll(&mut events, Some(timeout))
                && cause.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("robots on DDS are not heard any more: {cause}");
                return;
            }
            let ready: Vec<Token> = events.iter().map(Event::token).collect();
            for token in ready {
                match token {
                    WAKE => {}
                    DISCOVERED => self.is_news = true,
                    NODES => self.is_news |= self.nodes.take(),
                    token => self.take(token),
                }
            }
            if self.obey().is_err() {
                return;
            }
            self.make_readers();
            self.glance();
            let is_due = self.looked.elapsed() >= POLL_INTERVAL;
            // News come in bursts: once for each burst is enough.
            if is_due || (self.is_news && self.looked.elapsed() >= READER_PAUSE) {
                self.look();
            }
            self.describe();
        }
    }

    /// Does what was asked for; an error to end.
    fn obey(&mut self) -> Result<(), ()> {
        while let Ok(command) = self.received.try_recv() {
            match command {
                Command::Subscribe(wanted) => self.waiting.push_back(wanted),
                Command::Drop(token) => {
                    let token = Token(token);
                    self.waiting.retain(|wanted| wanted.token != token);
                    if let Some(mut reader) = self.readers.remove(&token) {
                        reader.deregister(&self.poll);
                    }
                }
                Command::End => return Err(()),
            }
        }
        Ok(())
    }

    /// Makes a few of the readers that are asked for.
    fn make_readers(&mut self) {
        for _ in 0..READERS_AT_ONCE {
            let Some(wanted) = self.waiting.pop_front() else {
                return;
            };
            let (token, topic) = (wanted.token, wanted.topic.ros_name.clone());
            let cause = match Reader::new(wanted, &self.participant, &self.subscriber) {
                Ok(mut reader) => match reader.register(&self.poll) {
                    Ok(()) => {
                        self.readers.insert(token, reader);
                        // What came before it was registered.
                        self.take(token);
                        continue;
                    }
                    Err(cause) => cause.to_string(),
                },
                // DDS has a queue of its own for new readers, which is full while the machine is busy.
                Err((wanted, _)) if wanted.asked.elapsed() < GIVE_UP => {
                    self.waiting.push_back(wanted);
                    return;
                }
                Err((_, cause)) => cause,
            };
            tracing::warn!("{topic} cannot be subscribed: {cause}");
            self.shared.told.lock().refused.insert(topic, cause);
        }
    }

    fn take(&mut self, token: Token) {
        if let Some(reader) = self.readers.get_mut(&token) {
            reader.take(&self.participant, &mut self.directory, &self.shared);
        }
    }

    fn glance(&mut self) {
        if self.glanced.elapsed() < GLANCE_EVERY {
            return;
        }
        self.glanced = Instant::now();
        let tokens: Vec<Token> = self.readers.keys().copied().collect();
        for token in tokens {
            self.take(token);
        }
        self.is_news |= self.nodes.take();
    }

    /// Tells the graph what was discovered.
    fn look(&mut self) {
        // What is told is a snapshot; the events say no more than that there is one.
        while self.listener.try_recv_status().is_some() {}
        (self.looked, self.is_news) = (Instant::now(), false);
        self.directory.set_nodes(self.nodes.by_guid());
        self.directory.look(&self.participant, &self.shared);
        let directory = &self.directory;
        self.descriptions.retain(|of| directory.has(of));
        for (of, unknown) in directory.unknown() {
            if let Some(schema) = self.descriptions.ask(of, &unknown) {
                directory.learn(&unknown, &schema);
            }
        }
    }

    /// Asks nodes for types, and takes in what they answer.
    fn describe(&mut self) {
        if !self.descriptions.is_busy() {
            return;
        }
        let answers = self.descriptions.turn(&self.participant, &self.subscriber);
        for (unknown, schema) in answers {
            self.directory.learn(&unknown, &schema);
        }
    }
}

/// Allows this process as many handles as the system lets it have: a reader of DDS needs four.
fn raise_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let now = getrlimit(Resource::Nofile);
        let wanted = now.maximum.map_or(HANDLES, |most| most.min(HANDLES));
        if now.current.is_some_and(|current| current < wanted) {
            let raised = Rlimit {
                current: Some(wanted),
                maximum: now.maximum,
            };
            if let Err(cause) = setrlimit(Resource::Nofile, raised) {
                tracing::debug!("the limit of open handles stays as it is: {cause}");
            }
        }
    }
}
