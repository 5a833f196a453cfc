//! One connection of `berth-sdk`: bytes and sockets in, bytes and sockets out, never waiting.
//!
//! Sockets travel with the first byte of their frame (`SCM_RIGHTS`), so when a whole frame has arrived its sockets have
//! too. A kernel may hand them over together with the end of the frame before, hence the queue.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use berth_api::link::{FrameError, MAX_SOCKETS, ToAgent, decode, encode};
use berth_runtime::kill_point::{Side, pass};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::servers::Outgoing;
use crate::effects::Effect;

/// Bytes read at once.
const PIECE: usize = 64 * 1024;
/// Sockets that may have arrived ahead of their frames.
const MAX_AHEAD: usize = 4 * MAX_SOCKETS;

/// Why a connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("berth-sdk closed the connection")]
    Closed,
    #[error("could not read from the link")]
    Read(#[source] io::Error),
    #[error("could not write to the link")]
    Write(#[source] io::Error),
    #[error("berth-sdk sent something that is not a frame")]
    Frame(#[source] FrameError),
    #[error("berth-sdk sent more sockets than belong to a frame")]
    TooManySockets,
    #[error("a frame speaks of {expected} sockets, and {arrived} came")]
    MissingSockets { expected: usize, arrived: usize },
    #[error("berth-sdk said {frame} out of turn")]
    OutOfTurn { frame: &'static str },
    #[error("berth-sdk speaks versions {theirs:?} of the link, we speak {ours:?}; upgrade the older one")]
    Version { theirs: (u32, u32), ours: (u32, u32) },
    #[error("berth-sdk did not say who it is and what it holds in time")]
    Overdue,
    #[error("berth-sdk handed back more servers than a node can have")]
    TooManyServers,
    #[error("a newer connection of berth-sdk took the place of this one")]
    Replaced,
    #[error("we stopped listening")]
    NotListening,
}

impl LinkError {
    /// A fixed word for metrics.
    pub(super) const fn category(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Read(_) | Self::Write(_) => "io",
            Self::Frame(_) => "frame",
            Self::TooManySockets | Self::MissingSockets { .. } => "sockets",
            Self::OutOfTurn { .. } => "out_of_turn",
            Self::Version { .. } => "version",
            Self::Overdue => "overdue",
            Self::TooManyServers => "too_many_servers",
            Self::Replaced => "replaced",
            Self::NotListening => "not_listening",
        }
    }
}

/// What is being written.
struct Writing {
    effect: Effect,
    bytes: Vec<u8>,
    written: usize,
    sockets: Vec<Arc<OwnedFd>>,
}

/// The connection.
pub(super) struct Connection {
    stream: UnixStream,
    inbox: Vec<u8>,
    arrived: VecDeque<OwnedFd>,
    writing: Option<Writing>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, inbox: Vec::new(), arrived: VecDeque::new(), writing: None }
    }

    /// Whether the next frame may be given to [`Connection::write`].
    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_none()
    }

    /// Takes the next frame to be written.
    ///
    /// # Errors
    /// It cannot be expressed; nothing of it is written.
    pub(super) fn write(&mut self, outgoing: Outgoing) -> Result<(), FrameError> {
        let bytes = encode(&outgoing.frame)?;
        let effect = Effect::from(&outgoing.frame);
        pass(effect, Side::Before);
        self.writing = Some(Writing { effect, bytes, written: 0, sockets: outgoing.sockets });
        Ok(())
    }

    /// Waits until something may be read, if `may_read`, or written, if there is something to write. Safe to drop.
    pub(super) async fn ready(&self, may_read: bool) -> Result<(), LinkError> {
        let interest = match (may_read, self.writing.is_some()) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => return std::future::pending().await,
        };
        self.stream.ready(interest).await.map(drop).map_err(LinkError::Read)
    }

    /// Writes as much as the kernel takes.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn flush(&mut self) -> Result<(), LinkError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let stream = &self.stream;
        while writing.written < writing.bytes.len() {
            let sent = stream.try_io(Interest::WRITABLE, || {
                let fds: Vec<_> = writing.sockets.iter().map(|socket| socket.as_fd()).collect();
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
                    return Err(io::Error::other("too many sockets for one frame"));
                }
                let bytes = [IoSlice::new(&writing.bytes[writing.written..])];
                Ok(sendmsg(stream, &bytes, &mut control, SendFlags::NOSIGNAL)?)
            });
            match sent {
                Ok(count) => {
                    writing.written += count;
                    // They went with the first byte.
                    writing.sockets.clear();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Write(error)),
            }
        }
        pass(writing.effect, Side::After);
        self.writing = None;
        Ok(())
    }

    /// Reads one piece, if there is one.
    ///
    /// # Errors
    /// The connection is broken or closed.
    pub(super) fn fill(&mut self) -> Result<(), LinkError> {
        let Self { stream, inbox, arrived, .. } = self;
        let start = inbox.len();
        inbox.resize(start + PIECE, 0);
        let result = stream.try_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [IoSliceMut::new(&mut inbox[start..])];
            let received = recvmsg(&*stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(sockets) = message {
                    arrived.extend(sockets);
                }
            }
            Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
        });
        inbox.truncate(start + result.as_ref().map_or(0, |(count, _)| *count));
        match result {
            Ok((_, true)) => Err(LinkError::TooManySockets),
            Ok((0, false)) => Err(LinkError::Closed),
            Ok(_) if self.arrived.len() > MAX_AHEAD => Err(LinkError::TooManySockets),
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(())
            }
            Err(error) => Err(LinkError::Read(error)),
        }
    }

    /// The next whole frame that has arrived.
    ///
    /// # Errors
    /// What has arrived is not a frame.
    pub(super) fn next(&mut self) -> Result<Option<ToAgent>, LinkError> {
        decode(&mut self.inbox).map_err(LinkError::Frame)
    }

    /// The sockets of the frame that was just taken.
    ///
    /// # Errors
    /// Fewer have come than the frame speaks of, or it speaks of more than a frame may carry.
    pub(super) fn sockets(&mut self, expected: usize) -> Result<Vec<OwnedFd>, LinkError> {
        if expected > MAX_SOCKETS {
            return Err(LinkError::TooManySockets);
        }
        let arrived = self.arrived.len();
        if arrived < expected {
            return Err(LinkError::MissingSockets { expected, arrived });
        }
        Ok(self.arrived.drain(..expected).collect())
    }
}
