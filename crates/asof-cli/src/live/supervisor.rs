//! Reports to a supervisor: systemd's `sd_notify`, a datagram to the socket that `NOTIFY_SOCKET` names.

/// Reports a state, such as `READY=1`. Nothing happens without a supervisor, and a failure is harmless.
pub fn tell(state: &str) {
    #[cfg(unix)]
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        send(&socket, state);
    }
    #[cfg(not(unix))]
    let _ = state;
}

#[cfg(unix)]
fn send(socket: &std::ffi::OsStr, state: &str) {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixDatagram;

    let told =
        UnixDatagram::unbound().and_then(|sender| match socket.as_bytes().strip_prefix(b"@") {
            #[cfg(target_os = "linux")]
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                sender.send_to_addr(state.as_bytes(), &address)
            }
            _ => sender.send_to(state.as_bytes(), socket),
        });
    if let Err(error) = told {
        tracing::debug!("cannot notify the supervisor: {error}");
    }
}
