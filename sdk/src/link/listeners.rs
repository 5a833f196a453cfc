//! The listening sockets of one server: taken from the agent, served, handed back, closed.
//!
//! Each is served by a task of its own. Listeners of an older sandbox are dead: they are closed as soon as the first of
//! a newer one comes, their connections with them. Under systemd they are [kept](super::kept) for the next process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use berth_api::link::{ListenerKey, Transport};
use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use berth_runtime::kill_point::{Side, pass};
use berth_runtime::tasks::Spawner;
use tokio::net::TcpListener;
use tracing::{info, warn};

use super::kept;
use crate::effects::Effect;
use crate::metrics::{ServeMetrics, Transport as Spoken};
use crate::seat::Seat;
use crate::serve::Desk;
use crate::serve::accept::Acceptor;

/// The listeners of one server.
#[derive(Debug)]
pub(super) struct Listeners {
    seat: Arc<Seat>,
    held: BTreeMap<ListenerKey, Held>,
}

#[derive(Debug)]
struct Held {
    socket: Arc<TcpListener>,
    /// Tells whether a socket that comes is this one once more.
    inode: u64,
    stop: CancellationToken,
}

/// What to do with a socket that comes.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It belongs to a sandbox that is gone.
    Dead,
    /// It is held already.
    Known,
    /// It is to be served, and what is held under these keys to be closed.
    Serve { instead_of: Vec<ListenerKey> },
}

impl Listeners {
    pub(super) fn new(seat: Arc<Seat>) -> Self {
        Self { seat, held: BTreeMap::new() }
    }

    /// Takes a socket and serves it.
    pub(super) fn take(
        &mut self,
        key: ListenerKey,
        socket: OwnedFd,
        metrics: &ServeMetrics,
        spawner: &Spawner,
    ) {
        let seat = Arc::clone(&self.seat);
        let uid = seat.uid();
        let inode = match inode(&socket) {
            Ok(inode) => inode,
            Err(error) => return warn!(game_server = %uid, error = %chain(&error), "listener refused"),
        };
        let held: Vec<(ListenerKey, u64)> = self.held.iter().map(|(key, held)| (*key, held.inode)).collect();
        let old = match judge(&held, key, inode) {
            Verdict::Dead => {
                return warn!(game_server = %uid, generation = key.generation, "dead listener refused");
            }
            Verdict::Known => return,
            Verdict::Serve { instead_of } => instead_of,
        };
        let socket = match listener(socket) {
            Ok(socket) => Arc::new(socket),
            Err(error) => return warn!(game_server = %uid, error = %chain(&error), "listener refused"),
        };
        for key in old {
            self.close(key);
        }
        if self.held.is_empty() {
            seat.opened();
        }
        let stop = seat.gone().child_token();
        let transport = spoken(key.transport);
        let acceptor = Acceptor {
            listener: Arc::clone(&socket),
            transport,
            desk: Desk::new(Arc::clone(&seat), transport, metrics.clone()),
            metrics: metrics.clone(),
            spawner: spawner.clone(),
        };
        pass(Effect::Serve, Side::Before);
        drop(spawner.spawn_child("listener", acceptor.accept(stop.clone())));
        pass(Effect::Serve, Side::After);
        info!(
            game_server = %uid,
            transport = ?key.transport,
            ipv6 = key.ipv6,
            generation = key.generation,
            "listener served"
        );
        kept::keep(self.seat.uid(), key, socket.as_fd());
        self.held.insert(key, Held { socket, inode, stop });
    }

    /// Closes all of them, since the server is gone.
    pub(super) fn close_all(&mut self) {
        for key in self.held.keys().copied().collect::<Vec<_>>() {
            self.close(key);
        }
    }

    /// Whether a listener is held under this key.
    pub(super) fn has(&self, key: ListenerKey) -> bool {
        self.held.contains_key(&key)
    }

    /// What is held, to be handed back.
    pub(super) fn held(&self) -> Vec<(ListenerKey, Arc<TcpListener>)> {
        self.held.iter().map(|(key, held)| (*key, Arc::clone(&held.socket))).collect()
    }

    fn close(&mut self, key: ListenerKey) {
        if let Some(held) = self.held.remove(&key) {
            held.stop.cancel();
            kept::release(self.seat.uid(), key);
            info!(
                game_server = %self.seat.uid(),
                transport = ?key.transport,
                ipv6 = key.ipv6,
                generation = key.generation,
                "listener closed"
            );
        }
    }
}

fn judge(held: &[(ListenerKey, u64)], key: ListenerKey, inode: u64) -> Verdict {
    let newest = held.iter().map(|(held, _)| held.generation).max();
    if newest.is_some_and(|newest| key.generation < newest) {
        return Verdict::Dead;
    }
    if held.contains(&(key, inode)) {
        return Verdict::Known;
    }
    let is_replaced = |held: &ListenerKey| *held == key || held.generation < key.generation;
    Verdict::Serve { instead_of: held.iter().map(|(held, _)| *held).filter(is_replaced).collect() }
}

fn spoken(transport: Transport) -> Spoken {
    match transport {
        Transport::Grpc => Spoken::Grpc,
        Transport::Rest => Spoken::Rest,
    }
}

fn inode(socket: &impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(socket)?.st_ino)
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    if !rustix::net::sockopt::socket_acceptconn(&socket)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
    }
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(transport: Transport, generation: u32) -> ListenerKey {
        ListenerKey { transport, ipv6: false, generation }
    }

    #[test]
    fn sockets_that_come() {
        let grpc = key(Transport::Grpc, 2);
        let rest = key(Transport::Rest, 2);
        let held = [(grpc, 10), (rest, 11)];
        let newer = key(Transport::Grpc, 3);
        let serve = |instead_of: &[ListenerKey]| Verdict::Serve { instead_of: instead_of.to_vec() };
        let cases = [
            ("the first", &[][..], grpc, 10, serve(&[])),
            ("another transport", &held[..1], rest, 11, serve(&[])),
            ("the same once more", &held[..], grpc, 10, Verdict::Known),
            ("another socket in its place", &held[..], grpc, 12, serve(&[grpc])),
            ("a newer sandbox", &held[..], newer, 13, serve(&[grpc, rest])),
            ("an older sandbox", &held[..], key(Transport::Rest, 1), 14, Verdict::Dead),
        ];
        for (name, held, key, inode, verdict) in cases {
            assert_eq!(judge(held, key, inode), verdict, "{name}");
        }
    }
}
