//! What servers of other people send.

use asof_foxglove::ServerText;

#[test]
fn null_is_absent_in_the_greeting_of_a_python_server() {
    let text = r#"{"op":"serverInfo","name":"example","capabilities":[],"supportedEncodings":null,
        "metadata":null,"sessionId":null}"#;
    let greeting = ServerText::parse(text).expect("a greeting");
    let ServerText::ServerInfo(info) = greeting else {
        panic!("a greeting");
    };
    assert_eq!(info.name, "example");
    assert!(info.metadata.is_empty() && info.session_id.is_none());
}
