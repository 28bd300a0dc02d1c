//! What a server and a client of Foxglove's protocol say to each other, up to the first message. Any WebSocket library
//! carries it.
//!
//! `cargo run -p asof-foxglove --example conversation`

use std::sync::Arc;

use asof_core::{Channel, Schema};
use asof_foxglove::{
    ClientText, ServerBinary, ServerInfo, ServerText, Subscribe, advertised, message_data,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let info = ServerText::ServerInfo(ServerInfo {
        name: "a robot".into(),
        capabilities: vec!["time".into()],
        ..ServerInfo::default()
    });
    println!("server: {}", info.to_text());

    let channel = Channel {
        topic: "/battery".into(),
        message_encoding: "json".into(),
        schema: Some(Arc::new(Schema {
            name: "Battery".into(),
            encoding: "jsonschema".into(),
            data: r#"{"type": "object", "properties": {"volts": {"type": "number"}}}"#.into(),
        })),
        ..Channel::default()
    };
    let offer = ServerText::Advertise {
        channels: vec![advertised(1, &channel.topic, &channel)],
    };
    println!("server: {}", offer.to_text());

    // The client chooses a number for its subscription, and finds it in each message.
    let ServerText::Advertise { channels } = ServerText::parse(&offer.to_text())? else {
        return Err("not an offer".into());
    };
    let request = ClientText::Subscribe {
        subscriptions: vec![Subscribe {
            channel_id: channels[0].id,
            id: 7,
        }],
    };
    println!("client: {}", request.to_text());

    let frame = message_data(7, 1_500_000_000, br#"{"volts": 12.4}"#);
    println!("server: {} bytes", frame.len());
    if let ServerBinary::Message {
        subscription,
        log_time,
        payload,
    } = ServerBinary::parse(&frame.into())?
    {
        let text = String::from_utf8_lossy(&payload);
        println!("client: subscription {subscription} at {log_time}: {text}");
    }
    Ok(())
}
