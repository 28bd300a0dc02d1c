//! A small Foxglove server that does what a test tells it.

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use asof_core::Channel;
use asof_foxglove::{
    ClientText, ParameterValue, PublishedTopic, ServerInfo, ServerText, advertised, message_data,
    time,
};
use tungstenite::handshake::server::{Request, Response};
use tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tungstenite::{Error, Message, WebSocket};

/// What a server does next.
#[derive(Clone)]
pub enum Act {
    Publish(String, u64, Vec<u8>),
    Status(String),
    Time(u64),
    Text(String),
    /// Ends the connection.
    Close,
    Binary(Vec<u8>),
    /// Bytes that go out as they are, under the WebSocket.
    Raw(Vec<u8>),
}

pub struct Server {
    address: SocketAddr,
    subprotocol: &'static str,
    state: Arc<State>,
    pub connections: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    channels: Mutex<Vec<Channel>>,
    /// By the client's number, the topic.
    subscriptions: Mutex<HashMap<u32, String>>,
    latched: Mutex<HashMap<String, (u64, Vec<u8>)>>,
    acts: Mutex<Vec<Act>>,
    /// Connections that ended with a word of both sides.
    partings: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panicked")
}

impl Server {
    pub fn start(subprotocol: &'static str, channels: &[Channel]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut server = Server {
            address: listener.local_addr().expect("an address"),
            subprotocol,
            state: Arc::default(),
            connections: Arc::default(),
            is_over: Arc::default(),
            thread: None,
        };
        server.serve(listener, channels);
        server
    }

    fn serve(&mut self, listener: TcpListener, channels: &[Channel]) {
        *lock(&self.state.channels) = channels.to_vec();
        lock(&self.state.subscriptions).clear();
        self.is_over = Arc::default();
        listener.set_nonblocking(true).expect("a listener");
        let (state, is_over) = (Arc::clone(&self.state), Arc::clone(&self.is_over));
        let (connections, subprotocol) = (Arc::clone(&self.connections), self.subprotocol);
        self.thread = Some(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        connections.fetch_add(1, Ordering::Relaxed);
                        talk(stream, subprotocol, &state, &is_over);
                        lock(&state.subscriptions).clear();
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        }));
    }

    /// How many connections ended with a word of both sides.
    pub fn partings(&self) -> usize {
        self.state.partings.load(Ordering::Relaxed)
    }

    pub fn address(&self) -> String {
        format!("foxglove://{}", self.address)
    }

    /// Hangs up, and does not answer any more.
    pub fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server did not panic");
        }
    }

    /// Is there again, at the same port.
    pub fn restart(&mut self, channels: &[Channel]) {
        let start = Instant::now();
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(cause) => assert!(start.elapsed() < Duration::from_mins(1), "{cause}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.serve(listener, channels);
    }

    pub fn act(&self, act: &Act) {
        lock(&self.state.acts).push(act.clone());
    }

    pub fn publish(&self, topic: &str, at: u64, payload: &[u8]) {
        self.act(&Act::Publish(topic.to_owned(), at, payload.to_vec()));
    }

    /// Sends this to all who subscribe to the topic.
    pub fn latch(&self, topic: &str, at: u64, payload: &[u8]) {
        let kept = (at, payload.to_vec());
        lock(&self.state.latched).insert(topic.to_owned(), kept);
    }

    pub fn subscribed(&self) -> Vec<String> {
        let subscriptions = lock(&self.state.subscriptions);
        let mut topics: Vec<String> = subscriptions.values().cloned().collect();
        topics.sort();
        topics
    }

    pub fn until_subscribed(&self, topic: &str) {
        let start = Instant::now();
        while !self.subscribed().iter().any(|one| one == topic) {
            assert!(start.elapsed() < Duration::from_mins(1), "not subscribed");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[allow(clippy::result_large_err, reason = "tungstenite wants it so")]
fn talk(stream: TcpStream, subprotocol: &'static str, state: &State, is_over: &AtomicBool) {
    stream.set_nonblocking(false).expect("a stream");
    let greet = |request: &Request, mut response: Response| {
        let offered = request.headers().get(SEC_WEBSOCKET_PROTOCOL);
        let offered = offered.and_then(|value| value.to_str().ok());
        let offered = offered.expect("a subprotocol");
        assert!(offered.contains(subprotocol), "{offered}");
        let chosen = subprotocol.parse().expect("a header");
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, chosen);
        Ok(response)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(stream, greet) else {
        return;
    };
    let quick = Some(Duration::from_millis(2));
    socket.get_ref().set_read_timeout(quick).expect("a timeout");
    if greeting(&mut socket, state).is_err() {
        return;
    }
    while !is_over.load(Ordering::Relaxed) {
        match socket.read() {
            Ok(Message::Text(text)) => {
                // What was asked before the client knew that it is over is not answered.
                if obey(&mut socket, state, &text).is_err() && socket.can_write() {
                    return;
                }
            }
            Ok(Message::Close(_)) => {
                state.partings.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(Error::Io(cause))
                if matches!(
                    cause.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(_) => return,
        }
        let acts = std::mem::take(&mut *lock(&state.acts));
        for act in acts {
            if perform(&mut socket, state, act).is_err() {
                return;
            }
        }
    }
}

type Socket = WebSocket<TcpStream>;

fn say(socket: &mut Socket, said: &ServerText) -> Result<(), Error> {
    socket.send(Message::Text(said.to_text().into()))
}

fn greeting(socket: &mut Socket, state: &State) -> Result<(), Error> {
    let capabilities = ["time", "parameters", "connectionGraph"].map(str::to_owned);
    say(
        socket,
        &ServerText::ServerInfo(ServerInfo {
            name: "a server of the tests".to_owned(),
            capabilities: capabilities.to_vec(),
            ..ServerInfo::default()
        }),
    )?;
    let channels = lock(&state.channels).clone();
    let numbered = channels.iter().enumerate();
    let channels = numbered.map(|(id, one)| advertised(id as u64, &one.topic, one));
    say(
        socket,
        &ServerText::Advertise {
            channels: channels.collect(),
        },
    )
}

fn obey(socket: &mut Socket, state: &State, text: &str) -> Result<(), Error> {
    match ClientText::parse(text).expect("a message of the protocol") {
        ClientText::Subscribe { subscriptions } => {
            for wanted in subscriptions {
                let channels = lock(&state.channels);
                let topic = channels[wanted.channel_id as usize].topic.clone();
                drop(channels);
                let kept = lock(&state.latched).get(&topic).cloned();
                lock(&state.subscriptions).insert(wanted.id, topic);
                if let Some((at, payload)) = kept {
                    socket.send(Message::Binary(
                        message_data(wanted.id, at, &payload).into(),
                    ))?;
                }
            }
            Ok(())
        }
        ClientText::Unsubscribe { subscription_ids } => {
            let mut known = lock(&state.subscriptions);
            for id in subscription_ids {
                known.remove(&id).expect("it was subscribed");
            }
            Ok(())
        }
        ClientText::GetParameters { id, .. } => say(
            socket,
            &ServerText::ParameterValues {
                parameters: vec![ParameterValue {
                    name: "/driver.speed".to_owned(),
                    value: Some(1.5.into()),
                    kind: None,
                }],
                id,
            },
        ),
        ClientText::SubscribeConnectionGraph => say(
            socket,
            &ServerText::ConnectionGraphUpdate {
                published_topics: vec![PublishedTopic {
                    name: "/a".to_owned(),
                    publisher_ids: vec!["/driver".to_owned()],
                }],
                subscribed_topics: Vec::new(),
                advertised_services: Vec::new(),
                removed_topics: Vec::new(),
                removed_services: Vec::new(),
            },
        ),
        other => panic!("{other:?}"),
    }
}

fn perform(socket: &mut Socket, state: &State, act: Act) -> Result<(), Error> {
    match act {
        Act::Publish(topic, at, payload) => {
            let subscriptions = lock(&state.subscriptions).clone();
            for (id, _) in subscriptions.iter().filter(|(_, one)| **one == topic) {
                socket.send(Message::Binary(message_data(*id, at, &payload).into()))?;
            }
            Ok(())
        }
        Act::Status(message) => say(
            socket,
            &ServerText::Status {
                level: 1,
                message,
                id: None,
            },
        ),
        Act::Time(nanos) => socket.send(Message::Binary(time(nanos).into())),
        Act::Text(text) => socket.send(Message::Text(text.into())),
        Act::Close => socket.close(None),
        Act::Binary(bytes) => socket.send(Message::Binary(bytes.into())),
        Act::Raw(bytes) => {
            socket.flush()?;
            Ok(socket.get_mut().write_all(&bytes)?)
        }
    }
}
