//! A stream that can be made to break after so many more bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes may still be written; one value for without end.
#[derive(Clone)]
pub(super) struct Budget(Arc<AtomicUsize>);

const WITHOUT_END: usize = usize::MAX;

impl Budget {
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// The stream.
pub(super) struct Cuttable<Stream> {
    stream: Stream,
    budget: Budget,
}

impl<Stream> Cuttable<Stream> {
    pub(super) fn new(stream: Stream) -> (Self, Budget) {
        let budget = Budget(Arc::new(AtomicUsize::new(WITHOUT_END)));
        (Self { stream, budget: budget.clone() }, budget)
    }
}

impl<Stream: AsyncRead + Unpin> AsyncRead for Cuttable<Stream> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<Stream: AsyncWrite + Unpin> AsyncWrite for Cuttable<Stream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let left = self.budget.0.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, &bytes[..bytes.len().min(left)]);
        if let (Poll::Ready(Ok(written)), true) = (&written, left != WITHOUT_END) {
            self.budget.set(left - written);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
