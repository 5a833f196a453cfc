//! Listeners that systemd keeps while `berth-sdk` is started anew. Each is known by a name, which says whose it is.
//!
//! Whatever goes wrong here costs a restart its head start and nothing else: the agent has copies of all listeners.

use std::os::fd::{BorrowedFd, OwnedFd};

use berth_api::link::{ListenerKey, ServerUid, Transport};
use berth_runtime::error::chain;
use berth_runtime::notify::{NotifyError, store};
use tracing::{info, warn};

/// A listener of the process before this one.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) uid: ServerUid,
    pub(super) key: ListenerKey,
    pub(super) socket: OwnedFd,
}

/// Has a listener kept.
pub(super) fn keep(uid: &ServerUid, key: ListenerKey, socket: BorrowedFd<'_>) {
    mind(store::keep(&name(uid, key), socket));
}

/// Lets go of a listener that was kept.
pub(super) fn release(uid: &ServerUid, key: ListenerKey) {
    mind(store::release(&name(uid, key)));
}

/// What was kept. What has a name that says nothing is let go.
pub(super) fn take() -> Vec<Kept> {
    let found = store::take().unwrap_or_else(|error| {
        warn!(error = %chain(&error), "listeners that were kept cannot be had");
        Vec::new()
    });
    if !found.is_empty() {
        info!(listeners = found.len(), "listeners were kept");
    }
    let read = |(text, socket): (String, OwnedFd)| match parse(&text) {
        Some((uid, key)) => Some(Kept { uid, key, socket }),
        None => {
            warn!(name = text, "something was kept that is no listener");
            mind(store::release(&text));
            None
        }
    };
    found.into_iter().filter_map(read).collect()
}

fn mind(told: Result<(), NotifyError>) {
    if let Err(error) = told {
        warn!(error = %chain(&error), "listeners may not outlive this process");
    }
}

/// `UID/grpc/4/GENERATION`.
fn name(uid: &ServerUid, key: ListenerKey) -> String {
    let transport = match key.transport {
        Transport::Grpc => "grpc",
        Transport::Rest => "rest",
    };
    let family = if key.ipv6 { '6' } else { '4' };
    format!("{uid}/{transport}/{family}/{}", key.generation)
}

fn parse(name: &str) -> Option<(ServerUid, ListenerKey)> {
    let [uid, transport, family, generation] = name.split('/').collect::<Vec<_>>().try_into().ok()?;
    let transport = match transport {
        "grpc" => Transport::Grpc,
        "rest" => Transport::Rest,
        _ => return None,
    };
    let ipv6 = match family {
        "4" => false,
        "6" => true,
        _ => return None,
    };
    let key = ListenerKey { transport, ipv6, generation: generation.parse().ok()? };
    (!uid.is_empty()).then(|| (ServerUid(uid.to_owned()), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_a_listener_is() {
        let uid = ServerUid("6f1c".to_owned());
        let key = ListenerKey { transport: Transport::Rest, ipv6: true, generation: 7 };
        assert_eq!(name(&uid, key), "6f1c/rest/6/7");
        for transport in [Transport::Grpc, Transport::Rest] {
            for ipv6 in [false, true] {
                let key = ListenerKey { transport, ipv6, generation: u32::MAX };
                assert_eq!(parse(&name(&uid, key)), Some((uid.clone(), key)));
            }
        }
    }

    #[test]
    fn other_names_say_nothing() {
        for name in
            ["", "stored", "a/grpc/4", "a/grpc/4/1/2", "a/udp/4/1", "a/grpc/5/1", "a/grpc/4/-1", "/grpc/4/1"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
