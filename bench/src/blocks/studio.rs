//! The caching source of a browser player, in a Node process of its own that measures itself.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use crate::harness::{Contender, contender};

/// The process, once it is needed.
#[derive(Clone)]
pub struct Studio(Rc<RefCell<Option<Talk>>>);

struct Talk {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Studio {
    /// Sets the peer up, if it is not; says so if that failed.
    pub fn prepare() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("target/studio-peer");
        if !folder.join("peer.mjs").exists() {
            let built = Command::new(root.join("peers/studio/build"))
                .arg(&folder)
                .stdout(Stdio::null())
                .status();
            if !built.is_ok_and(|status| status.success()) {
                eprintln!("blocks: the Node peer could not be set up; its cases have no peer");
                return Studio(Rc::default());
            }
        }
        let child = Command::new("node")
            .arg(folder.join("peer.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let talk = child.ok().and_then(|mut child| {
            let answers = BufReader::new(child.stdout.take()?);
            Some(Talk { child, answers })
        });
        Studio(Rc::new(RefCell::new(talk)))
    }

    /// The peer's part of a case, where there is a peer.
    pub fn contender(&self, case: &'static str) -> Option<Contender<'static>> {
        self.0.borrow().as_ref()?;
        let this = self.clone();
        Some(contender("node", move || this.ask(case)))
    }

    fn ask(&self, case: &str) -> f64 {
        let mut talk = self.0.borrow_mut();
        let talk = talk.as_mut().expect("it is there");
        let stdin = talk.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{case}").expect("node listens");
        let mut answer = String::new();
        talk.answers.read_line(&mut answer).expect("node answers");
        answer.trim().parse().expect("node answers with a figure")
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
