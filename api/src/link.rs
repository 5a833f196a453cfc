//! The link between an agent and the `berth-sdk` of its node: what is said over `/run/berth/link/sdk.sock`.
//!
//! A frame is a length (four bytes, big endian) and that many bytes of JSON. Sockets travel beside the bytes
//! (`SCM_RIGHTS`): a frame says how many belong to it, and a reader takes that many, oldest first, from those that have
//! arrived. The agent listens, `berth-sdk` connects and speaks first; both sides begin with a Hello and settle on the
//! highest version that both speak. Either side may vanish at any time: after a reconnect `berth-sdk` hands back the
//! listeners it holds and says again every change that has not been acknowledged, the agent says again every server.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::game_server::counters::CounterChange;
use crate::game_server::lists::ListChange;
use crate::game_server::players::PlayersChange;
use crate::game_server::{GameServerStatus, HealthRule};

/// Versions of the link that this crate speaks, lowest and highest.
pub const VERSIONS: (u32, u32) = (1, 2);
/// Largest frame, in bytes; a longer one is a broken peer.
pub const MAX_FRAME: usize = 4 * 1024 * 1024;
/// Most sockets in one frame.
pub const MAX_SOCKETS: usize = 16;

/// Number of a change, counted from 1 for each server UID without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// UID of a GameServer: who a call, a listener or a change belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerUid(pub String);

impl std::fmt::Display for ServerUid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// gRPC.
    Grpc,
    /// REST and WebSocket.
    Rest,
}

/// One listening socket that travels with a frame, in the order of the list it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListenerKey {
    /// What it speaks.
    pub transport: Transport,
    /// Bound to `::1` rather than 127.0.0.1.
    pub ipv6: bool,
    /// Grows with each sandbox of a server, also across restarts of the agent: listeners of an older one are dead.
    pub generation: u32,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame")]
pub enum ToSdk {
    /// First frame.
    Hello {
        /// Versions spoken, lowest and highest.
        versions: (u32, u32),
        /// Version of the agent.
        agent: String,
        /// Name of the node.
        node: String,
    },
    /// A server to serve, or what is known of it now. Idempotent; sent for every server after each Hello.
    Server {
        /// Whose.
        uid: ServerUid,
        /// What its game may see.
        view: Box<View>,
        /// Changes up to this one are contained in the view.
        applied: Sequence,
    },
    /// Listening sockets of a server, one per key. Those of an older generation are to be closed.
    Listeners {
        /// Whose.
        uid: ServerUid,
        /// One per socket of this frame.
        keys: Vec<ListenerKey>,
    },
    /// The game's container started so long ago: the clock for pings starts there.
    Started {
        /// Whose.
        uid: ServerUid,
        /// Time since the start.
        ago: Duration,
    },
    /// Changes up to this one are done with (applied, or dropped for good).
    Acknowledge {
        /// Whose.
        uid: ServerUid,
        /// The last one that is done with.
        sequence: Sequence,
    },
    /// The server is gone: close its listeners and streams, forget it.
    Forget {
        /// Whose.
        uid: ServerUid,
    },
}

/// What `berth-sdk` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame")]
pub enum ToAgent {
    /// First frame.
    Hello {
        /// Versions spoken, lowest and highest.
        versions: (u32, u32),
        /// Version of `berth-sdk`.
        sdk: String,
        /// Chosen anew by each process.
        process_id: String,
    },
    /// Listening sockets that `berth-sdk` holds for a server, one per key: after each Hello, so that an agent that has
    /// none gets them back. A server the agent does not know is answered with Forget.
    HandBack {
        /// Whose.
        uid: ServerUid,
        /// One per socket of this frame.
        keys: Vec<ListenerKey>,
    },
    /// All HandBack frames have been sent.
    HandBackEnds,
    /// The game asked for something, and was answered.
    Change {
        /// Whose.
        uid: ServerUid,
        /// Its number.
        sequence: Sequence,
        /// What was asked for.
        change: Change,
        /// What its game could see when it asked; nothing is known of what a berth-sdk of version 1 says.
        #[serde(default)]
        seen: Seen,
    },
    /// Whether the game is alive, as its pings tell; sent on change, and for every server that is Silent after a Hello.
    Pings {
        /// Whose.
        uid: ServerUid,
        /// What they tell.
        pulse: Pulse,
    },
}

/// What the pings of a game tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pulse {
    /// Pings come, or none is due.
    Alive,
    /// As many pings in a row were missed as the rule allows.
    Silent {
        /// How many were missed.
        missed: u32,
    },
}

/// What a game could see of its server when it asked for something: a wish that is older than a session which somebody
/// else began does not end it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Generation of what it was shown; 0 where that is not known.
    #[serde(default)]
    pub generation: i64,
    /// The allocations that it knew of, by their times: the one that it was shown, and those it had asked for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
}

/// A change, and what its game could see when it asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What was asked for.
    #[serde(flatten)]
    pub change: Change,
    /// What the game could see.
    #[serde(default)]
    pub seen: Seen,
}

impl From<Change> for Asked {
    /// Of a game of which nothing else is known.
    fn from(change: Change) -> Self {
        Self { change, seen: Seen::default() }
    }
}

/// What a game asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change")]
pub enum Change {
    /// `Ready()`.
    Ready,
    /// `Allocate()`.
    Allocate {
        /// RFC 3339 time of the call, with nanoseconds.
        at: String,
    },
    /// `Reserve(seconds)`.
    Reserve {
        /// RFC 3339 end; absent means without end.
        until: Option<String>,
    },
    /// `Shutdown()`.
    Shutdown,
    /// `SetLabel`, its key without the prefix, already validated.
    Label {
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
    /// `SetAnnotation`, its key without the prefix, already validated.
    Annotation {
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
    /// An operation on a counter, checked against what the game was shown. Since version 2.
    Counter {
        /// Its name.
        name: String,
        /// What is asked of it.
        by: CounterChange,
    },
    /// An operation on a list, checked against what the game was shown. Since version 2.
    List {
        /// Its name.
        name: String,
        /// What is asked of it.
        by: ListChange,
    },
    /// An operation on the players, checked against what the game was shown. Since version 2.
    Players {
        /// What is asked of them.
        by: PlayersChange,
    },
}

impl Change {
    /// The version of the link that brought this kind; a peer of an older one cannot read it.
    pub const fn since(&self) -> u32 {
        match self {
            Self::Ready
            | Self::Allocate { .. }
            | Self::Reserve { .. }
            | Self::Shutdown
            | Self::Label { .. }
            | Self::Annotation { .. } => 1,
            Self::Counter { .. } | Self::List { .. } | Self::Players { .. } => 2,
        }
    }

    /// Whether it asks for a state.
    pub const fn is_state(&self) -> bool {
        match self {
            Self::Ready | Self::Allocate { .. } | Self::Reserve { .. } | Self::Shutdown => true,
            Self::Label { .. }
            | Self::Annotation { .. }
            | Self::Counter { .. }
            | Self::List { .. }
            | Self::Players { .. } => false,
        }
    }

    /// Bytes of it that a game can make more of.
    pub fn size(&self) -> usize {
        match self {
            Self::Label { key, value } | Self::Annotation { key, value } => key.len() + value.len(),
            Self::Counter { name, .. } => name.len(),
            Self::List { name, by } => name.len() + by.size(),
            Self::Players { by } => by.size(),
            Self::Ready | Self::Allocate { .. } | Self::Reserve { .. } | Self::Shutdown => 0,
        }
    }
}

impl View {
    /// The allocation that it shows, by its time; empty where whoever made it noted none.
    pub fn session(&self) -> Option<String> {
        let noted = self.annotations.get(crate::names::LAST_ALLOCATED_ANNOTATION);
        let is_allocated = self.status.state == Some(crate::lifecycle::State::Allocated);
        is_allocated.then(|| noted.cloned().unwrap_or_default())
    }
}

/// What a game may see of its server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID of the GameServer.
    pub uid: String,
    /// Resource version of what is shown.
    pub resource_version: String,
    /// Generation of what is shown.
    pub generation: i64,
    /// Unix seconds.
    pub creation_timestamp: i64,
    /// Unix seconds; 0 while nobody has asked for deletion.
    pub deletion_timestamp: i64,
    /// Annotations.
    pub annotations: std::collections::BTreeMap<String, String>,
    /// Labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// The rule for pings.
    pub health: Option<HealthRule>,
    /// The status.
    pub status: GameServerStatus,
}

/// A frame that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`MAX_FRAME`].
    #[error("a frame of {length} bytes; at most {MAX_FRAME} are allowed")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// Not the JSON it should be.
    #[error("could not read a frame")]
    Decode(#[source] serde_json::Error),
    /// Could not be written as JSON.
    #[error("could not write a frame")]
    Encode(#[source] serde_json::Error),
}

/// A frame as bytes, its length in front.
///
/// # Errors
/// Too long, or not expressible in JSON.
pub fn encode<F: Serialize>(frame: &F) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, frame).map_err(FrameError::Encode)?;
    let length = bytes.len() - 4;
    match u32::try_from(length) {
        Ok(prefix) if length <= MAX_FRAME => bytes[..4].copy_from_slice(&prefix.to_be_bytes()),
        Ok(_) | Err(_) => return Err(FrameError::TooLong { length }),
    }
    Ok(bytes)
}

/// Takes the first whole frame from `buffer`, if one is there.
///
/// # Errors
/// The bytes are not a frame; the connection is of no more use.
pub fn decode<F: for<'a> Deserialize<'a>>(buffer: &mut Vec<u8>) -> Result<Option<F>, FrameError> {
    let Some(prefix) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong { length });
    }
    let end = 4 + length;
    if buffer.len() < end {
        return Ok(None);
    }
    let frame = serde_json::from_slice(&buffer[4..end]).map_err(FrameError::Decode)?;
    buffer.drain(..end);
    Ok(Some(frame))
}

/// The version that two peers speak: the highest both know.
pub fn common_version(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
    let highest = ours.1.min(theirs.1);
    (highest >= ours.0.max(theirs.0)).then_some(highest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Asked, Change, FrameError, MAX_FRAME, Seen, Sequence, ServerUid, ToAgent, ToSdk};
    use super::{common_version, decode, encode};
    use crate::game_server::counters::CounterChange;

    fn acknowledge(number: u64) -> ToSdk {
        ToSdk::Acknowledge { uid: ServerUid("u".into()), sequence: Sequence(number) }
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        assert_eq!(common_version((1, 3), (2, 5)), Some(3));
        assert_eq!(common_version((1, 1), (1, 1)), Some(1));
        assert_eq!(common_version((1, 1), (2, 2)), None);
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        let mut buffer = u32::try_from(MAX_FRAME + 1).expect("small").to_be_bytes().to_vec();
        assert!(matches!(decode::<ToSdk>(&mut buffer), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn what_version_1_has_written_is_read() {
        let written = r#"{"change":"Label","key":"k","value":"v"}"#;
        let change = Change::Label { key: "k".into(), value: "v".into() };
        assert_eq!(serde_json::from_str::<Asked>(written).expect("reads"), change.into());
        let ready = serde_json::from_str::<Asked>(r#"{"change":"Ready"}"#).expect("reads");
        assert_eq!(ready, Change::Ready.into());
        let frame = r#"{"frame":"Change","uid":"u","sequence":1,"change":{"change":"Ready"}}"#;
        assert!(serde_json::from_str::<ToAgent>(frame).is_ok());
    }

    #[test]
    fn an_operation_survives_the_journal() {
        let by = CounterChange { capacity: Some(i64::MAX), count: None, diff: i64::MIN };
        let change = Change::Counter { name: "rooms".into(), by };
        let seen = Seen { generation: i64::MAX, sessions: vec!["t".into()] };
        let asked = Asked { change, seen };
        let written = serde_json::to_vec(&asked).expect("writes");
        assert_eq!(serde_json::from_slice::<Asked>(&written).expect("reads"), asked);
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(numbers in proptest::collection::vec(any::<u64>(), 1..8), cut in 1_usize..64) {
            let bytes: Vec<u8> =
                numbers.iter().flat_map(|number| encode(&acknowledge(*number)).expect("encodes")).collect();
            let mut buffer = Vec::new();
            let mut read = Vec::new();
            for piece in bytes.chunks(cut) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = decode::<ToSdk>(&mut buffer).expect("decodes") {
                    read.push(frame);
                }
            }
            let sent: Vec<ToSdk> = numbers.iter().map(|number| acknowledge(*number)).collect();
            prop_assert_eq!(read, sent);
        }

        #[test]
        fn nonsense_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode::<ToSdk>(&mut bytes);
        }
    }
}
