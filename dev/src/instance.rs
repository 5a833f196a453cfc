//! A cluster's traces on this machine: a folder with a name, a number, and a list of everything that was made.
//!
//! Promises that whatever happens, at whatever instant, what an instance made can be found and taken away again:
//! - a thing is written down before it is made;
//! - every process carries the instance's mark in its environment, so that one that was started but not yet
//!   written down is found too;
//! - the processes of an instance that belongs to a process end when that one dies, and the rest is [`sweep`]t away
//!   by whoever comes next.
//!
//! Names and addresses that are the machine's (bridges, control groups, subnets, ports) are derived from the number,
//! which no two instances share.

mod daemon;
mod folder;
mod ports;
mod record;
mod teardown;
mod watcher;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

pub use daemon::{Daemon, DaemonError, Launch};
pub use folder::{Owner, RunningInstance, instances};
pub use teardown::{TeardownError, down, sweep};

use crate::lock::{Lock, LockError};
use crate::process::Identity;
use record::{Ledger, Thing};
use watcher::Watcher;

/// The variable that marks every process of an instance; its value is the instance's folder.
const MARK: &str = "BERTH_DEV_INSTANCE";

/// Why an instance could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The name cannot be a folder's and a host's.
    #[error(
        "an instance's name has 1 to 24 small letters, digits and dashes, and starts with a letter: {0:?} does not"
    )]
    Name(String),
    /// Its files.
    #[error("could not write the instance's files at {path}")]
    Files {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its lock.
    #[error("could not lock the instances of this machine")]
    Lock(#[from] LockError),
    /// Somebody else is starting or stopping it at this moment.
    #[error("another command is working on the instance {0}: wait until it has ended")]
    Busy(String),
    /// It belongs to a process.
    #[error("the instance {name} belongs to process {pid}, which still runs")]
    Owned {
        /// The instance.
        name: String,
        /// Its owner.
        pid: i32,
    },
    /// Too many at once.
    #[error("all numbers for instances are taken on this machine: stop one (`berth-dev status` lists them)")]
    Full,
    /// Nobody to end its processes should we die.
    #[error("could not start the watcher that ends the instance's processes with ours")]
    Watcher(#[source] io::Error),
    /// No port for a daemon.
    #[error("no free port for {0} among this instance's ports {1} to {2}: stop what listens there")]
    NoPort(String, u16, u16),
}

/// A named set of daemons, files, links and control groups on this machine.
///
/// One that belongs to this process is taken down when it is dropped.
#[derive(Debug)]
pub struct Instance {
    name: String,
    number: u8,
    folder: PathBuf,
    owner: Owner,
    ledger: Ledger,
    /// Guards the processes that are our children, to be reaped: by number.
    children: Mutex<HashMap<i32, Child>>,
    /// Guards the choice of a port.
    ports: Mutex<()>,
    /// Ends our processes when we die, if they are ours alone.
    _watcher: Option<Watcher>,
    /// Keeps other commands from starting and stopping the same things at the same time.
    _work: Option<Lock>,
}

impl Instance {
    /// A new instance that belongs to this process, under a name that no other has. Sweeps first.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn create(purpose: &str) -> Result<Arc<Self>, InstanceError> {
        teardown::sweep_quietly();
        let owner = Owner::Process(Identity::own());
        let settled = folder::create(purpose, owner)?;
        Self::at(settled, None)
    }

    /// The instance of this name, which outlives this process. Made when it is not there.
    ///
    /// # Errors
    /// When its folder cannot be made, when another command has it open, or when it belongs to a living process.
    pub fn open(name: &str) -> Result<Arc<Self>, InstanceError> {
        teardown::sweep_quietly();
        let (settled, work) = folder::open(name)?;
        Self::at(settled, Some(work))
    }

    fn at(settled: RunningInstance, work: Option<Lock>) -> Result<Arc<Self>, InstanceError> {
        let RunningInstance { name, number, folder, owner } = settled;
        let ledger = Ledger::open(&folder)?;
        let mark = mark(&folder);
        let watcher = match owner {
            Owner::Nobody => None,
            Owner::Process(_) => Some(Watcher::start(&mark).map_err(InstanceError::Watcher)?),
        };
        let (children, ports) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Self {
            name,
            number,
            folder,
            owner,
            ledger,
            children,
            ports,
            _watcher: watcher,
            _work: work,
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that its addresses and names on this machine are derived from.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A folder of this name below its own, made when it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn subfolder(&self, name: impl AsRef<Path>) -> Result<PathBuf, InstanceError> {
        let path = self.folder.join(name);
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(source) => Err(InstanceError::Files { path, source }),
        }
    }

    /// A free port of this machine for `purpose`: the same one each time it is asked for.
    ///
    /// # Errors
    /// When all of the instance's ports are taken.
    pub fn port(&self, purpose: &str) -> Result<u16, InstanceError> {
        let _choosing = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports::choose(&self.folder, self.number, purpose)
    }

    /// Writes down that a network device of this name is about to be made.
    pub(crate) fn will_make_link(&self, name: &str) -> Result<(), InstanceError> {
        self.ledger.note(&Thing::Link { name: name.to_owned() })
    }

    /// Writes down that control groups of this name are about to be made.
    pub(crate) fn will_make_cgroup(&self, name: &str) -> Result<(), InstanceError> {
        self.ledger.note(&Thing::Cgroup { name: name.to_owned() })
    }

    /// What every process of this instance has in its environment.
    pub(crate) fn mark(&self) -> (String, String) {
        mark(&self.folder)
    }

    /// The living process that was last started under this name.
    pub(crate) fn running(&self, name: &str) -> Option<Identity> {
        let things = record::read(&self.folder);
        let mut processes = things.into_iter().rev().filter_map(|thing| match thing {
            Thing::Process { name: found, identity } if found == name => Some(identity),
            Thing::Process { .. } | Thing::Link { .. } | Thing::Cgroup { .. } => None,
        });
        processes.next().filter(|identity| identity.is_alive())
    }

    fn adopt(&self, name: &str, identity: Identity, child: Child) -> Result<(), InstanceError> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.pid(), child);
        self.ledger.note(&Thing::Process { name: name.to_owned(), identity })
    }

    /// How a process that we started has ended. `None` while it runs, and when another process started it.
    fn exit_status(&self, identity: Identity) -> Option<ExitStatus> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.get_mut(&identity.pid()).and_then(|child| child.try_wait().ok().flatten())
    }

    /// Takes note of every child that has ended; how it ended stays known.
    fn reap(&self) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        for child in children.values_mut() {
            // One that somebody else has waited for has ended too.
            let _ = child.try_wait();
        }
    }
}

fn mark(folder: &Path) -> (String, String) {
    (MARK.to_owned(), folder.to_string_lossy().into_owned())
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Owner::Process(_) = self.owner {
            teardown::drop_quietly(&self.name);
            self.reap();
        }
    }
}
