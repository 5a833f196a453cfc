//! The words of the node lease: who holds a node, and how a game server is handed over.
//!
//! A node's Lease lives in `berth-system` under the node's name. Its holder is node, boot and process; its
//! `leaseTransitions` is the epoch, which goes up whenever the holder changes. Clocks of two machines are never
//! compared: an observer counts a lease as live from the moment it *saw* a renewal, on its own monotonic clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names;

/// How long a lease lasts without renewal.
pub const DURATION: Duration = Duration::from_secs(10);
/// How often it is renewed.
pub const RENEWAL: Duration = Duration::from_secs(3);
/// How long before its end the holder stops acting, and after its end others wait.
pub const MARGIN: Duration = Duration::from_secs(2);

/// Number of the present holder; goes up whenever the holder changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub i32);

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Who holds a node: written as `node/boot/process`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Name of the node.
    pub node: String,
    /// Kernel boot the process lives in.
    pub boot_id: String,
    /// Chosen anew by each process.
    pub process_id: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.node, self.boot_id, self.process_id)
    }
}

/// A holder identity that is not ours to read.
#[derive(Debug, thiserror::Error)]
#[error("holder {0:?} is not of the form node/boot/process")]
pub struct HolderError(String);

impl FromStr for Holder {
    type Err = HolderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [node, boot_id, process_id]
                if [node, boot_id, process_id].iter().all(|part| !part.is_empty()) =>
            {
                Ok(Self {
                    node: (*node).to_owned(),
                    boot_id: (*boot_id).to_owned(),
                    process_id: (*process_id).to_owned(),
                })
            }
            _ => Err(HolderError(text.to_owned())),
        }
    }
}

/// Version of [`HandOver`] and [`Returned`] that this crate writes.
pub const FORMAT_VERSION: u32 = 1;

/// The hand-over of a server to one boot of one node: the annotation [`names::LEASE_ANNOTATION`], as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOver {
    /// Format version.
    pub version: u32,
    /// Name of the node. Whoever gets to write the server's status cannot change it, so that its agent may write it back.
    #[serde(default)]
    pub node: String,
    /// UID of the Node object.
    pub node_uid: String,
    /// Kernel boot of the node.
    pub boot_id: String,
}

impl HandOver {
    /// A hand-over in the present format.
    pub fn new(node: impl Into<String>, node_uid: impl Into<String>, boot_id: impl Into<String>) -> Self {
        Self {
            version: FORMAT_VERSION,
            node: node.into(),
            node_uid: node_uid.into(),
            boot_id: boot_id.into(),
        }
    }

    /// The text of the annotation.
    pub fn to_annotation(&self) -> String {
        // A struct of plain strings and numbers always serialises; `Value` keeps this total.
        serde_json::json!(self).to_string()
    }

    /// Reads the annotation.
    ///
    /// # Errors
    /// Not JSON, a field is missing, or a version newer than this crate.
    pub fn from_annotation(text: &str) -> Result<Self, FormatError> {
        let read: Self = serde_json::from_str(text)
            .map_err(|source| FormatError::Decode { annotation: names::LEASE_ANNOTATION, source })?;
        if read.version > FORMAT_VERSION {
            return Err(FormatError::Version { annotation: names::LEASE_ANNOTATION, version: read.version });
        }
        Ok(read)
    }
}

/// A node handed a server back: the annotation [`names::RETURNED_ANNOTATION`], as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Returned {
    /// Format version.
    pub version: u32,
    /// The node that could not take it.
    pub node: String,
    /// Why, in a sentence.
    pub reason: String,
    /// How many nodes have handed it back so far.
    pub times: u32,
}

impl Returned {
    /// The text of the annotation.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads the annotation.
    ///
    /// # Errors
    /// Not JSON, a field is missing, or a version newer than this crate.
    pub fn from_annotation(text: &str) -> Result<Self, FormatError> {
        let read: Self = serde_json::from_str(text)
            .map_err(|source| FormatError::Decode { annotation: names::RETURNED_ANNOTATION, source })?;
        if read.version > FORMAT_VERSION {
            return Err(FormatError::Version {
                annotation: names::RETURNED_ANNOTATION,
                version: read.version,
            });
        }
        Ok(read)
    }
}

/// An annotation that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Not the JSON it should be.
    #[error("could not read annotation {annotation}")]
    Decode {
        /// Its name.
        annotation: &'static str,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// Written by a newer program.
    #[error(
        "annotation {annotation} has format version {version}; this program reads up to {FORMAT_VERSION}"
    )]
    Version {
        /// Its name.
        annotation: &'static str,
        /// Its version.
        version: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::{HandOver, Holder, Returned};

    #[test]
    fn a_holder_reads_what_it_writes_and_nothing_else() {
        let holder = Holder { node: "node-1".into(), boot_id: "b".into(), process_id: "p".into() };
        assert_eq!(holder.to_string().parse::<Holder>().expect("its own text"), holder);
        for text in ["", "node", "a/b", "a//c", "a/b/c/d"] {
            assert!(text.parse::<Holder>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn annotations_read_what_they_write_and_refuse_what_is_newer() {
        let hand_over = HandOver::new("node", "uid", "boot");
        // What manifests/policies/agents-game-servers.yaml looks for.
        assert!(hand_over.to_annotation().contains(r#""node":"node""#), "{}", hand_over.to_annotation());
        assert_eq!(HandOver::from_annotation(&hand_over.to_annotation()).expect("its own text"), hand_over);
        let newer = HandOver { version: 2, ..hand_over };
        assert!(HandOver::from_annotation(&newer.to_annotation()).is_err());
        let returned = Returned { version: 1, node: "n".into(), reason: "no free port".into(), times: 1 };
        assert_eq!(Returned::from_annotation(&returned.to_annotation()).expect("its own text"), returned);
        assert!(Returned::from_annotation("{}").is_err());
    }
}
