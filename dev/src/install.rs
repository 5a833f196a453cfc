//! Berth in a cluster: the one module of this crate that knows what the cluster is for.
//!
//! Two ways. [`install_pods`] is what ships: the manifests as they are, and images of the programs. [`Berth`] runs the same
//! programs as plain processes, as on self-managed nodes, which tests can kill at will: the brain on the machine, on each
//! node `berth-sdk` without any privilege and `berth-agent` with all.

mod berth;
mod first_run;
mod manifests;
mod offer;
mod overlay;
mod pods;
mod program_images;
mod programs;

use std::io;
use std::path::{Path, PathBuf};

pub use berth::{Berth, BerthOptions};
pub use first_run::{Reply, first_run, game_image};
pub use manifests::{apply, enable_namespace};
pub use pods::{PodsOptions, install_pods};

use crate::access::AccessError;
use crate::binaries::BinariesError;
use crate::cluster::ClusterError;
use crate::command::CommandError;
use crate::eventually::Overdue;
use crate::images::ImageError;
use crate::instance::{DaemonError, InstanceError};

/// Berth could not be installed, or does not do what it is for.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file of the tree, or a program.
    #[error("could not use {path}: is everything built?")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A manifest is no manifest.
    #[error("{path} holds something that is no Kubernetes object")]
    Manifest {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_yaml_ng::Error,
    },
    /// The cluster refuses an object.
    #[error("the cluster did not take {object} of {path}")]
    Apply {
        /// Which object.
        object: String,
        /// From where.
        path: PathBuf,
        /// Why.
        source: kube::Error,
    },
    /// The cluster does not answer, or refuses.
    #[error("could not {what}")]
    Api {
        /// What we wanted.
        what: &'static str,
        /// Why.
        source: kube::Error,
    },
    /// A program's image.
    #[error("could not make an image of a program")]
    Image(#[from] ImageError),
    /// A tool of the machine.
    #[error("a tool failed")]
    Command(#[source] CommandError),
    /// The programs of Kubernetes.
    #[error("could not have the programs of Kubernetes")]
    Binaries(#[from] BinariesError),
    /// Its folder in the cluster's.
    #[error("could not make a place for Berth")]
    Instance(#[from] InstanceError),
    /// Ways into the cluster.
    #[error("could not make a way into the cluster")]
    Access(#[from] AccessError),
    /// A program.
    #[error("a program of Berth failed")]
    Daemon(#[from] DaemonError),
    /// A node.
    #[error("a node failed")]
    Cluster(#[from] ClusterError),
    /// A program runs and does not do its part.
    #[error("Berth does not come up; the end of {log}:\n{last_words}")]
    NotUp {
        /// The log.
        log: PathBuf,
        /// Its end.
        last_words: String,
        /// What we saw.
        source: Overdue,
    },
    /// It does not become what it should.
    #[error("it did not come true in time: {hint}")]
    Late {
        /// Where to look.
        hint: String,
        /// What we saw.
        source: Overdue,
    },
}

fn at(path: &Path) -> impl Fn(io::Error) -> InstallError {
    move |source| InstallError::File { path: path.to_owned(), source }
}
