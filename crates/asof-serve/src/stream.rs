//! A client's socket, monitored: whether it is being read, and when it has to end.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::waiting::Connection;

/// A socket that ends when its [`Connection`] does, and reports its progress to it.
pub(crate) struct WatchedStream {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl WatchedStream {
    pub fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        WatchedStream { stream, connection }
    }

    fn note<T>(&self, cx: &Context<'_>, written: Poll<Result<T, Error>>) -> Poll<Result<T, Error>> {
        if written.is_pending() {
            self.connection.writer.register(cx.waker());
            // It may have ended before the waker was there.
            self.check()?;
            self.connection.note_blocked();
        } else {
            self.connection.note_sent();
        }
        written
    }

    fn check(&self) -> Result<(), Error> {
        if self.connection.is_ended() {
            let text = "the client stopped reading, and others needed its memory";
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        Ok(())
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        self.check()?;
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_pending() {
            self.connection.reader.register(cx.waker());
            self.check()?;
        }
        read
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.note(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
