//! A real Kubernetes cluster on one machine, for people and for tests.
//!
//! What it promises: real programs, started in seconds; any number of clusters side by side; and nothing left behind,
//! whatever happens to whoever started them.
//!
//! - [`ControlPlane`]: etcd and kube-apiserver, with or without controllers and scheduler. No root needed.
//! - [`Cluster`]: that, and nodes with a real kubelet and containerd each, or many with a [simulated] kubelet.
//! - [`eventually`]: the one way to wait.
//! - [`Line`]: a way to a server that can be slow, silent, or cut.
//! - [`Instance`]: the traces of a cluster on this machine; [`down`] and [`sweep`] take them away.
//!
//! It knows nothing about game servers, except in the module that installs Berth into a cluster.

mod access;
mod audit;
mod binaries;
mod certificates;
mod cgroups;
mod cluster;
mod command;
mod control_plane;
mod eventually;
mod fingerprint;
pub mod go;
mod images;
pub mod install;
mod instance;
mod line;
mod lock;
pub mod machine;
mod node_spaces;
pub mod packages;
mod places;
mod process;
pub mod python;
mod redis;
pub mod simulated;

pub use access::AccessError;
pub use audit::{AuditLog, Write};
pub use binaries::{Binaries, BinariesError, kubernetes_version};
pub use certificates::CertificateError;
pub use cluster::{Cluster, ClusterError, ClusterOptions, Node, NodeIndex, NodeKind};
pub use command::CommandError;
pub use control_plane::{ControlPlane, ControlPlaneError, ControlPlaneOptions};
pub use eventually::{Overdue, eventually};
pub use images::{Image, ImageError};
pub use instance::{
    Daemon, DaemonError, Instance, InstanceError, Launch, Owner, RunningInstance, TeardownError, down,
    instances, sweep,
};
pub use line::Line;
pub use lock::LockError;
pub use node_spaces::SpacesError;
pub use places::{cache_folder, instances_folder, is_root, program_folder, source_folder};
pub use process::Identity;
pub use redis::{Redis, RedisError, RedisOptions, RedisTls};
