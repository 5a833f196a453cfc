//! A Kubernetes client with limits, words for what the API server answered, and watches that do not stop.
//!
//! Every call has a deadline, retries are the caller's (by [`Class`]), and one object that cannot be decoded never stops
//! a watch of the others.

pub mod bounded;
pub mod class;
pub mod connect;
pub mod questions;
mod version;
pub mod watching;

pub use bounded::{CallError, within};
pub use class::{Class, classify, classify_watch};
pub use connect::{ConnectError, KubeSettings, client};
pub use questions::ask_until_answered;
pub use version::{VersionError, require_version};
pub use watching::{Lenient, Skipped, Undecodable, open, watch, watch_lenient};
