//! One connection to the agent: frames and the sockets beside them, in both directions.
//!
//! Both halves are safe to drop while they wait: nothing is read or written then.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use berth_api::link::{MAX_SOCKETS, ToAgent, ToSdk, decode, encode};
use berth_runtime::kill_point::{Side, pass};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::{TcpListener, UnixStream};

use super::LinkError;
use crate::effects::Effect;

/// What is read at once.
const CHUNK: usize = 64 * 1024;
/// Most sockets that one message of the kernel carries.
const MOST_AT_ONCE: usize = 253;
/// Sockets that may wait for the frame that claims them: those of a few frames that come together.
const MOST_UNCLAIMED: usize = 4 * MAX_SOCKETS;
/// Bytes that may wait to be written before no more frames are made.
const ENOUGH: usize = 256 * 1024;

/// A frame from the agent, with the sockets that belong to it.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) frame: ToSdk,
    pub(super) sockets: Vec<OwnedFd>,
}

/// Connects to the agent's socket.
pub(super) async fn connect(path: &Path) -> Result<(Inbound, Outbound), LinkError> {
    let stream = Arc::new(UnixStream::connect(path).await.map_err(LinkError::Connect)?);
    let inbound = Inbound {
        stream: Arc::clone(&stream),
        chunk: vec![0; CHUNK].into(),
        bytes: Vec::new(),
        sockets: VecDeque::new(),
    };
    Ok((inbound, Outbound { stream, parcels: VecDeque::new(), waiting: 0 }))
}

/// What comes from the agent.
#[derive(Debug)]
pub(super) struct Inbound {
    stream: Arc<UnixStream>,
    /// Where the kernel writes to.
    chunk: Box<[u8]>,
    /// What has come and is no whole frame yet.
    bytes: Vec<u8>,
    /// In the order in which they came.
    sockets: VecDeque<OwnedFd>,
}

impl Inbound {
    /// Waits for the next frame.
    pub(super) async fn next(&mut self) -> Result<Arrival, LinkError> {
        loop {
            if let Some(frame) = decode::<ToSdk>(&mut self.bytes).map_err(LinkError::Incoming)? {
                let sockets = self.claim(&frame)?;
                return Ok(Arrival { frame, sockets });
            }
            if self.sockets.len() > MOST_UNCLAIMED {
                return Err(LinkError::StraySockets { count: self.sockets.len() });
            }
            self.receive().await?;
        }
    }

    fn claim(&mut self, frame: &ToSdk) -> Result<Vec<OwnedFd>, LinkError> {
        let claimed = match frame {
            ToSdk::Listeners { keys, .. } => keys.len(),
            ToSdk::Hello { .. }
            | ToSdk::Server { .. }
            | ToSdk::Started { .. }
            | ToSdk::Acknowledge { .. }
            | ToSdk::Forget { .. } => 0,
        };
        let found = self.sockets.len();
        if claimed > found {
            return Err(LinkError::MissingSockets { claimed, found });
        }
        Ok(self.sockets.drain(..claimed).collect())
    }

    async fn receive(&mut self) -> Result<(), LinkError> {
        let Self { stream, chunk, bytes, sockets } = self;
        let length = stream
            .async_io(Interest::READABLE, || {
                let mut space =
                    [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let received = recvmsg(
                    stream.as_fd(),
                    &mut [IoSliceMut::new(chunk)],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
                )?;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        sockets.extend(descriptors);
                    }
                }
                Ok((!received.flags.contains(ReturnFlags::CTRUNC)).then_some(received.bytes))
            })
            .await
            .map_err(LinkError::Receive)?
            .ok_or(LinkError::LostSockets)?;
        if length == 0 {
            return Err(LinkError::Closed);
        }
        bytes.extend_from_slice(&chunk[..length]);
        Ok(())
    }
}

/// What goes to the agent.
#[derive(Debug)]
pub(super) struct Outbound {
    stream: Arc<UnixStream>,
    parcels: VecDeque<Parcel>,
    /// Bytes of all parcels that are not written yet.
    waiting: usize,
}

#[derive(Debug)]
struct Parcel {
    effect: Effect,
    bytes: Vec<u8>,
    written: usize,
    /// Go with the first byte.
    sockets: Vec<Arc<TcpListener>>,
}

impl Outbound {
    /// Puts a frame behind those that wait.
    pub(super) fn push(&mut self, frame: &ToAgent, sockets: Vec<Arc<TcpListener>>) -> Result<(), LinkError> {
        let bytes = encode(frame).map_err(LinkError::Outgoing)?;
        self.waiting += bytes.len();
        self.parcels.push_back(Parcel { effect: Effect::from(frame), bytes, written: 0, sockets });
        Ok(())
    }

    /// Whether more frames should be made before those that wait are written.
    pub(super) fn has_room(&self) -> bool {
        self.waiting < ENOUGH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Writes a part of what waits; waits for ever when nothing does.
    pub(super) async fn write_some(&mut self) -> Result<(), LinkError> {
        let Self { stream, parcels, waiting } = self;
        let Some(parcel) = parcels.front_mut() else {
            return std::future::pending().await;
        };
        if parcel.written == 0 {
            pass(parcel.effect, Side::Before);
        }
        let written = stream
            .async_io(Interest::WRITABLE, || {
                let bytes = [IoSlice::new(&parcel.bytes[parcel.written..])];
                let descriptors: Vec<BorrowedFd<'_>> =
                    parcel.sockets.iter().map(|socket| socket.as_fd()).collect();
                let mut space =
                    [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if parcel.written == 0 && !descriptors.is_empty() {
                    // The space is made for as many as a frame may have.
                    control.push(SendAncillaryMessage::ScmRights(&descriptors));
                }
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                Ok(sendmsg(stream.as_fd(), &bytes, &mut control, flags)?)
            })
            .await
            .map_err(LinkError::Send)?;
        parcel.written += written;
        *waiting -= written;
        if parcel.written == parcel.bytes.len() {
            pass(parcel.effect, Side::After);
            parcels.pop_front();
        }
        Ok(())
    }

    /// Writes all that waits.
    pub(super) async fn flush(&mut self) -> Result<(), LinkError> {
        while !self.is_empty() {
            self.write_some().await?;
        }
        Ok(())
    }
}
