//! Queries of the page: what answers them, their limits, and their end when nobody waits.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asof_core::testing::eventually;
use asof_demo::DemoEncoding;
use asof_serve::{
    QueryAnswer, QueryColumn, QueryEngine, QueryKind, QueryLimits, Refusal, ServeOptions,
};
use common::{Served, demo, demo_with, options};
use serde_json::json;

/// Answers with the query itself; one that is called `forever` ends when it is given up.
#[derive(Default)]
struct Echo {
    running: AtomicUsize,
    given_up: AtomicUsize,
}

impl QueryEngine for Echo {
    fn answer(&self, query: &str, limits: &QueryLimits) -> Result<QueryAnswer, Refusal> {
        if query == "wrong" {
            return Err("there is no table 'wrong'".into());
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        while query == "forever" && !limits.is_given_up() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if limits.is_given_up() {
            self.given_up.fetch_add(1, Ordering::SeqCst);
        }
        Ok(QueryAnswer {
            columns: vec![QueryColumn {
                name: "a \"b\"".to_owned(),
                kind: QueryKind::Text,
            }],
            rows: vec![json!([query]).to_string(), json!([limits.rows]).to_string()],
            cut: None,
        })
    }
}

fn served(engine: &Arc<Echo>) -> Served {
    let options = ServeOptions {
        queries: Some(Arc::clone(engine) as Arc<dyn QueryEngine>),
        ..options()
    };
    demo_with(1, DemoEncoding::Cdr, &options)
}

#[test]
fn a_query_is_answered_by_what_the_server_was_given() {
    let engine = Arc::default();
    let served = served(&engine);
    assert_eq!(served.get("/api/summary").json()["sql"], json!(true));
    let answer = served.get("/api/sql?query=SELECT%201%20%2B%202&limit=7");
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json(),
        json!({
            "columns": [{"name": "a \"b\"", "kind": "text"}],
            "cut": null,
            "rows": [["SELECT 1 + 2"], [7]],
        })
    );
    // No client can ask for more than the server gives.
    let most = served.get("/api/sql?query=x&limit=4000000000").json();
    assert_eq!(most["rows"][1], json!([10_000]));
    let wrong = served.get("/api/sql?query=wrong");
    assert_eq!(
        (wrong.status, wrong.json()),
        (400, json!({"error": "there is no table 'wrong'"}))
    );
}

#[test]
fn without_an_engine_the_server_says_how_to_get_one() {
    let served = demo(1);
    assert_eq!(served.get("/api/summary").json()["sql"], json!(false));
    let answer = served.get("/api/sql?query=SELECT%201");
    assert_eq!(answer.status, 400);
    assert!(
        answer.json()["error"]
            .as_str()
            .expect("a text")
            .contains("--features sql")
    );
}

#[test]
fn a_query_ends_when_its_client_goes_away_and_another_has_its_turn() {
    let engine: Arc<Echo> = Arc::default();
    let served = served(&engine);
    let clients: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut client = TcpStream::connect(served.address()).expect("connect");
            let request = "GET /api/sql?query=forever HTTP/1.1\r\nhost: localhost\r\n\r\n";
            client.write_all(request.as_bytes()).expect("sent");
            client
        })
        .collect();
    eventually("both queries", || {
        engine.running.load(Ordering::SeqCst) == 2
    });
    drop(clients);
    // Two run at once: this one waits until one of them has ended.
    assert_eq!(served.get("/api/sql?query=next").status, 200);
    eventually("the end of queries for nobody", || {
        engine.given_up.load(Ordering::SeqCst) == 2
    });
}
