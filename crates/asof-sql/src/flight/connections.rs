//! Connections, and their limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

/// Incoming connections. Those beyond the limit are closed at once.
pub fn incoming(
    listener: TcpListener,
    places: usize,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    let places = Arc::new(Semaphore::new(places));
    stream::unfold((listener, places), |(listener, places)| async move {
        let connection = next(&listener, &places).await;
        Some((Ok(connection), (listener, places)))
    })
}

async fn next(listener: &TcpListener, places: &Arc<Semaphore>) -> Connection {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Probably too many open files: others have to close first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            // Small answers are sent at once; where that cannot be set they are sent later.
            drop(stream.set_nodelay(true));
            return Connection {
                stream,
                _place: place,
            };
        }
    }
}

/// A connection, and its permit among those that may be open.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = <TcpStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
