//! `asof play`: a recording, published to a robot's network.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use asof::text::counted;
use asof::{PlayOptions, Playback, Recording};
use ratatui::crossterm::event::{self, Event as Key, KeyCode, KeyModifiers};
use ratatui::crossterm::terminal;

use super::robot::TICK;
use super::{Connection, Play};
use crate::Outcome;
use crate::failure::Usage;
use crate::place::{FileOpening, Purpose};
use crate::screen::Screen;
use crate::select::no_topic;

/// How often due messages are published.
const PACE: Duration = Duration::from_millis(1);

impl Play {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let connection = Connection {
            url: self.url.clone(),
            duration: self.duration,
            ..Connection::default()
        };
        if !self.url.starts_with("zenoh://") {
            return Err(Usage::error(
                "a recording is published only to Zenoh; name an address such as zenoh://host:7447",
            ));
        }
        let opening = FileOpening::default();
        let file = opening.open(&self.places, Purpose::Hold, screen)?;
        let recording = Recording::new(file, &self.places);
        let topics = recording.topics();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        for (from, _) in &self.remap {
            if !topics.contains(&from.as_str()) {
                return Err(no_topic(from, &self.places[0], &topics));
            }
        }
        let options = PlayOptions {
            query: self.select.query(&self.places[0], &recording, screen)?,
            rate: self.rate,
            repeat: self.repeat,
            // The first of several names counts.
            names: self.remap.iter().rev().cloned().collect(),
            clock: self.clock,
            paused: self.paused,
        };
        let mut session = connection.open(screen)?;
        let mut playback = session.robot.playback(&recording, options)?;
        let left_out = playback.report().left_out;
        if !left_out.is_empty() {
            let listed = left_out.join(", ");
            screen.warning(format_args!(
                "left out, as they cannot be published: {listed}"
            ));
        }
        let topics = counted(playback.topics() as u64, "topic");
        screen.note(format_args!("playing {topics} to {}", self.url));
        let keys = Keys::new();
        // Topics are no sign of a robot: they are ours.
        let (mut looked, mut has_answered) = (Instant::now(), false);
        while session.is_open() && !playback.is_ended() {
            playback.tick(Instant::now())?;
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                has_answered |= session.robot.is_connected();
                session.tell(screen);
            }
            match keys.next() {
                Some(Pressed::Pause) if playback.is_paused() => playback.resume(),
                Some(Pressed::Pause) => playback.pause(),
                Some(Pressed::End) => break,
                None => std::thread::sleep(PACE),
            }
        }
        drop(keys);
        let outcome = tell(&playback, screen);
        // What nobody was there for was published in vain.
        has_answered |= session.robot.is_connected();
        anyhow::ensure!(has_answered, "no robot answered at {}", self.url);
        Ok(outcome)
    }
}

fn tell(playback: &Playback, screen: &Screen) -> Outcome {
    let report = playback.report();
    if !report.behind.is_zero() {
        let worst = report.behind.as_secs_f64();
        screen.warning(format_args!("it was behind by up to {worst:.1} s"));
    }
    let published = counted(report.published, "message");
    screen.note(format_args!("{published} published"));
    if report.undecoded == 0 {
        return Outcome::Done;
    }
    let count = counted(report.undecoded, "message");
    screen.warning(format_args!("{count} left out: they could not be decoded"));
    Outcome::Damaged
}

enum Pressed {
    Pause,
    End,
}

/// Keys pressed at a terminal: space pauses and resumes, q quits.
struct Keys {
    is_terminal: bool,
}

impl Keys {
    fn new() -> Self {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Keys {
            is_terminal: is_terminal && terminal::enable_raw_mode().is_ok(),
        }
    }

    fn next(&self) -> Option<Pressed> {
        if !self.is_terminal || !event::poll(Duration::ZERO).ok()? {
            return None;
        }
        let Ok(Key::Key(key)) = event::read() else {
            return None;
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char(' ') => Some(Pressed::Pause),
            KeyCode::Char('q') | KeyCode::Esc => Some(Pressed::End),
            KeyCode::Char('c') if is_control => Some(Pressed::End),
            _ => None,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.is_terminal {
            drop(terminal::disable_raw_mode());
        }
    }
}
