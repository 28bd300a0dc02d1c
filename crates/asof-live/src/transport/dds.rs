//! DDS: topics from the discovery of writers (SEDP), one reader for each subscribed key.
//!
//! One thread does everything: it polls discovery, creates readers, and takes what they received. DDS has its own
//! threads for the network. Readers are BEST_EFFORT, so that they cost the robot nothing, except where writers keep
//! messages for late joiners: those readers are reliable.

mod descriptions;
mod directory;
mod early;
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
use self::reader::{Manner, Reader, SubscriptionRequest};
use super::{Losses, SubscriptionGuard, Transport, incomplete};
use crate::graph::{Graph, Origin};
use crate::ros::QosOverride;
use crate::subscribe::Callback;
use crate::{DdsAddress, LiveError, Publisher, RobotInfo};

pub(crate) use self::directory::DdsTopic;

/// How often discovery is polled, even without events: events may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often every reader is polled, even without events.
const GLANCE_EVERY: Duration = Duration::from_secs(1);
/// Discovery drops announcements that come faster than it can send them; so readers are created in groups, with a
/// pause after each.
const READERS_AT_ONCE: usize = 25;
const READER_PAUSE: Duration = Duration::from_millis(10);
/// How long a reader that cannot be created is retried.
const GIVE_UP: Duration = Duration::from_secs(30);
/// The limit of file descriptors: four for each reader, and some more.
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

/// State that the thread shares with the session.
#[derive(Default)]
pub(super) struct Shared {
    pub losses: Losses,
    pub told: Mutex<NetworkState>,
}

#[derive(Default)]
pub(super) struct NetworkState {
    /// Writers of topics.
    pub writers: usize,
    /// Processes on the network.
    pub participants: usize,
    /// Nodes with a type description service.
    pub describers: usize,
    /// Topics whose writers do not announce their type hash.
    pub without_hash: usize,
    /// Writers and readers of the robot whose quality of service does not match, as sentences by topic.
    pub mismatches: Vec<(String, String)>,
    /// Messages that are missing in their writers' sequence numbers, by topic.
    pub lost: BTreeMap<String, u64>,
    /// Topics that could not be subscribed, and why.
    pub refused: BTreeMap<String, String>,
    /// The nodes that publish each topic.
    pub publishers: BTreeMap<String, Vec<String>>,
}

enum Command {
    Subscribe(SubscriptionRequest),
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
        // The last session may be dropped within a callback, which runs on this very thread.
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
    ) -> Result<SubscriptionGuard, LiveError> {
        let Origin::Dds(topic) = &publisher.origin else {
            return Err(LiveError::NoKeys {
                key: publisher.key.clone(),
            });
        };
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let is_alive = Arc::new(AtomicBool::new(true));
        let wanted = SubscriptionRequest {
            token: Token(token),
            topic: Arc::clone(topic),
            described: Arc::clone(&publisher.described),
            manner: Manner::of(topic, publisher.qos.unwrap_or_default(), asked),
            callback,
            asked: Instant::now(),
            is_alive: Arc::clone(&is_alive),
        };
        // The thread ends only with the session.
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
                "{count} messages are missing in their writers' sequence numbers: they were lost on the network, or came faster than \
                 they were taken"
            );
            problems.push(incomplete(text).on_topic(topic));
        }
        for (topic, cause) in &told.refused {
            let text = format!("cannot be subscribed: {cause}");
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

/// The state of the thread.
struct Worker {
    // Readers are dropped before their participant.
    readers: HashMap<Token, Reader>,
    nodes: Nodes,
    descriptions: Descriptions,
    subscriber: Subscriber,
    listener: DomainParticipantStatusListener,
    participant: DomainParticipant,
    poll: Poll,
    received: Receiver<Command>,
    /// Readers that are still to be created.
    waiting: VecDeque<SubscriptionRequest>,
    directory: Directory,
    shared: Arc<Shared>,
    looked: Instant,
    glanced: Instant,
    /// Whether something was discovered since the last poll.
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
                tracing::error!("reception of DDS messages has stopped: {cause}");
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
            // Discovery events come in bursts: once per burst is enough.
            if is_due || (self.is_news && self.looked.elapsed() >= READER_PAUSE) {
                self.look();
            }
            self.describe();
        }
    }

    /// Executes commands; an error ends the thread.
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

    /// Creates a few of the requested readers.
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
                        // Messages that came before it was registered.
                        self.take(token);
                        continue;
                    }
                    Err(cause) => cause.to_string(),
                },
                // DDS has its own queue for new readers, which is full while the machine is busy.
                Err((wanted, _)) if wanted.asked.elapsed() < GIVE_UP => {
                    self.waiting.push_back(wanted);
                    return;
                }
                Err((_, cause)) => cause,
            };
            tracing::warn!("cannot subscribe to {topic}: {cause}");
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

    /// Updates the graph with what was discovered.
    fn look(&mut self) {
        // Discovery is read as a snapshot; the events only announce that there is a new one.
        while self.listener.try_recv_status().is_some() {}
        (self.looked, self.is_news) = (Instant::now(), false);
        self.directory.set_nodes(self.nodes.by_guid());
        self.directory.look(&self.participant, &self.shared);
        let waiting = self
            .readers
            .iter()
            .filter(|(_, reader)| reader.is_waiting());
        let waiting: Vec<Token> = waiting.map(|(token, _)| *token).collect();
        for token in waiting {
            self.take(token);
        }
        let directory = &self.directory;
        self.descriptions.retain(|of| directory.has(of));
        for (of, unknown) in directory.unknown() {
            if let Some(schema) = self.descriptions.ask(of, &unknown) {
                directory.learn(&unknown, &schema);
            }
        }
    }

    /// Requests type descriptions from nodes, and processes their answers.
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

/// Raises this process's limit of file descriptors as far as the system allows: a DDS reader needs four.
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
                tracing::debug!("the limit of file descriptors cannot be raised: {cause}");
            }
        }
    }
}
