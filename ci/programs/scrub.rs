//! Makes a large recording, and seeks in it as a client of the server: for `ci/long/serve-memory`.
//!
//! `scrub make FILE BYTES` writes pictures and clouds; `scrub run ADDRESS PID SECONDS` seeks at random through the
//! server at ADDRESS and prints the peak memory of the process PID.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use asof_formats::{Compression, McapWriter, McapWriterOptions};
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["make", file, bytes] => make(file, bytes.parse()?),
        ["run", address, pid, seconds] => run(address, pid, Duration::from_secs(seconds.parse()?)),
        _ => Err("usage: scrub make FILE BYTES | scrub run ADDRESS PID SECONDS".into()),
    }
}

fn make(file: &str, bytes: u64) -> Outcome<()> {
    let options = McapWriterOptions {
        compression: Compression::None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(file, options)?;
    for message in asof_demo::large_messages(1, bytes) {
        writer.write(&message)?;
    }
    writer.finish()?;
    Ok(())
}

fn run(address: &str, pid: &str, time: Duration) -> Outcome<()> {
    let began = Instant::now();
    let mut socket = connect(address)?;
    let duration = loop {
        if let Some(hello) = next(&mut socket)?.filter(|message| message["op"] == "hello") {
            break hello["summary"]["duration"].as_i64().unwrap_or(0);
        }
    };
    println!("summary after {:.3} s", began.elapsed().as_secs_f64());
    let forms = [
        ("/camera/color", "image"),
        ("/camera/depth", "image"),
        ("/camera/color/compressed", "image"),
        ("/lidar/points", "points"),
    ];
    for (topic, form) in forms {
        let wanted = json!({ "op": "subscribe", "topic": topic, "form": form });
        socket.send(Message::Text(wanted.to_string().into()))?;
    }
    let (mut seeks, mut latencies, mut most) = (0_u64, Vec::new(), 0);
    let mut told = Instant::now();
    while began.elapsed() < time {
        seeks += 1;
        // Steps that reach every part of the recording, in an order that does not repeat.
        let t =
            (i128::from(seeks) * 6_364_136_223_846_793_005 % i128::from(duration.max(1))) as i64;
        let asked = Instant::now();
        let command = json!({ "op": "seek", "t": t });
        socket.send(Message::Text(command.to_string().into()))?;
        let mut heard = 0;
        while heard < forms.len() && asked.elapsed() < Duration::from_secs(10) {
            let Some(message) = next(&mut socket)? else {
                break;
            };
            let is_near = message["t"]
                .as_i64()
                .is_some_and(|at| at <= t && t - at < 150_000_000);
            heard +=
                usize::from(message["form"].is_string() && (is_near || message["op"] == "nothing"));
        }
        latencies.push(asked.elapsed());
        most = most.max(resident(pid)?);
        if told.elapsed() > Duration::from_secs(20) {
            told = Instant::now();
            println!(
                "{:4.0} s: {seeks} seeks, {} MB",
                began.elapsed().as_secs_f64(),
                resident(pid)? / 1_000_000
            );
        }
    }
    latencies.sort_unstable();
    let at =
        |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{seeks} seeks; answer in the median {:.0} ms, p95 {:.0} ms; resident {} MB at the end, {} MB at the most",
        at(0.5),
        at(0.95),
        resident(pid)? / 1_000_000,
        most / 1_000_000,
    );
    Ok(())
}

fn connect(address: &str) -> Outcome<WebSocket<TcpStream>> {
    let mut request = format!("ws://{address}/ws").into_client_request()?;
    let protocol = "asof.v1".parse()?;
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocol);
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(15)))?;
    Ok(tungstenite::client(request, stream)
        .map_err(|error| error.to_string())?
        .0)
}

/// The next message of the server; of a binary one, its head.
fn next(socket: &mut WebSocket<TcpStream>) -> Outcome<Option<Value>> {
    Ok(match socket.read()? {
        Message::Text(text) => Some(serde_json::from_str(&text)?),
        Message::Binary(bytes) => {
            let len = bytes
                .first_chunk()
                .map_or(0, |len| u32::from_le_bytes(*len)) as usize;
            bytes
                .get(4..4 + len)
                .map(serde_json::from_slice)
                .transpose()?
        }
        _ => None,
    })
}

/// Resident memory of a process, in bytes.
fn resident(pid: &str) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line.unwrap_or("0").trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}
