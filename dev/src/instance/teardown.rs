//! Taking an instance away, from what is found: after a crash as after a day's work.
//!
//! Everything ends by `SIGKILL`: nothing in here outlives the folder, so nothing needs to be said goodbye to. Killing
//! the process that holds a node's namespaces ends all that runs in them, containers included. Failures are
//! collected and do not stop the rest.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use rustix::process::Signal;

use super::folder::{self, Owner, RunningInstance};
use super::record::{self, Thing};
use super::{InstanceError, MARK};
use crate::eventually::eventually;
use crate::lock::Lock;
use crate::process::{self, Identity};
use crate::{cgroups, command};

/// For one step of a teardown. Each takes milliseconds; the limit is for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// What could not be taken away.
#[derive(Debug)]
pub struct TeardownError {
    instance: String,
    failures: Vec<String>,
}

impl std::error::Error for TeardownError {}

impl fmt::Display for TeardownError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "something of the instance {} stayed: {}", self.instance, self.failures.join("; "))
    }
}

/// Takes the instance of this name down. False when there is none.
///
/// # Errors
/// When something of it stayed. A second call goes on where this one stopped.
pub async fn down(name: &str) -> Result<bool, TeardownError> {
    let found = folder::find(name).is_some();
    if found {
        take_down(name).await?;
    }
    tidy(name)?;
    Ok(found)
}

/// Takes down every instance whose owner is dead, and gives their names.
///
/// # Errors
/// When something of one of them stayed. The others are gone all the same.
pub async fn sweep() -> Result<Vec<String>, TeardownError> {
    let dead = dead_instances();
    let mut outcome = Ok(());
    for name in &dead {
        outcome = outcome.and(take_down(name).await);
    }
    outcome.and(tidy("sweep"))?;
    Ok(dead)
}

fn dead_instances() -> Vec<String> {
    folder::instances()
        .into_iter()
        .filter(|instance| instance.owner.is_dead())
        .map(|instance| instance.name)
        .collect()
}

/// Sweeps on the way to something else: what stays is the next one's to sweep.
pub(super) fn sweep_quietly() {
    if !dead_instances().is_empty() {
        wait_on_thread(async {
            if let Err(error) = sweep().await {
                tracing::warn!(%error, "left from an earlier run");
            }
        });
    }
}

/// Takes down an instance that its owner drops.
pub(super) fn drop_quietly(name: &str) {
    let name = name.to_owned();
    wait_on_thread(async move {
        if let Err(error) = down(&name).await {
            tracing::warn!(%error, "left for the next sweep");
        }
    });
}

/// Runs to its end on a thread of its own: the caller may be in the middle of an asynchronous task, or have no
/// runtime at all.
fn wait_on_thread(work: impl Future<Output = ()> + Send + 'static) {
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(work),
            Err(error) => tracing::warn!(%error, "no runtime to take an instance down with"),
        }
    });
    // A panic in there has been printed, and the caller may be a destructor.
    let _ = thread.join();
}

/// Under the instance's lock: who comes second finds nothing left to do.
async fn take_down(name: &str) -> Result<(), TeardownError> {
    let mut failures = Vec::new();
    let path = folder::lock_path(name);
    let lock =
        eventually(PATIENCE, format!("{} to be free", path.display()), async || {
            match Lock::try_acquire(&path) {
                Ok(Some(lock)) => Ok(lock),
                Ok(None) => Err("held by another command".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        });
    match lock.await {
        Ok(lock) => {
            match folder::find(name) {
                Some(RunningInstance { owner: Owner::Process(owner), .. })
                    if owner.is_alive() && owner != Identity::own() =>
                {
                    failures.push(format!(
                        "it belongs to process {}, which still runs: end that first",
                        owner.pid()
                    ));
                }
                Some(instance) => remove(&instance, &mut failures).await,
                None => {}
            }
            lock.remove();
        }
        Err(error) => failures.push(error.to_string()),
    }
    if failures.is_empty() { Ok(()) } else { Err(TeardownError { instance: name.to_owned(), failures }) }
}

async fn remove(instance: &RunningInstance, failures: &mut Vec<String>) {
    let things = record::read(&instance.folder);
    let groups: Vec<&str> = things.iter().filter_map(|thing| named(thing, Kind::Cgroup)).collect();
    let links: Vec<&str> = things.iter().filter_map(|thing| named(thing, Kind::Link)).collect();

    let ended = eventually(PATIENCE, "its processes to end", async || {
        recorded(&things).for_each(Identity::reap);
        let alive = processes_of(&instance.folder, &things, &groups);
        if alive.is_empty() {
            return Ok(());
        }
        let pids: Vec<String> = alive.iter().map(|identity| identity.pid().to_string()).collect();
        for identity in alive {
            identity.signal(Signal::KILL);
        }
        Err(format!("processes {}", pids.join(", ")))
    });
    failures.extend(ended.await.err().map(|error| error.to_string()));

    for link in links {
        failures.extend(remove_link(link).err());
    }
    for group in groups {
        // A group stays busy for a moment after its last process has ended.
        let what = format!("the control groups {group} to go");
        let gone =
            eventually(PATIENCE, what, async || cgroups::remove(group).map_err(|error| error.to_string()));
        failures.extend(gone.await.err().map(|error| error.to_string()));
    }
    failures.extend(unmount_below(&instance.folder).err());
    // With something left, the list of what was made is still needed.
    if failures.is_empty() {
        let removed = eventually(PATIENCE, "its files to go", async || folder::remove(&instance.folder));
        failures.extend(removed.await.err().map(|error| error.to_string()));
    }
}

enum Kind {
    Link,
    Cgroup,
}

fn named(thing: &Thing, kind: Kind) -> Option<&str> {
    match (thing, kind) {
        (Thing::Link { name }, Kind::Link) | (Thing::Cgroup { name }, Kind::Cgroup) => Some(name),
        (Thing::Process { .. } | Thing::Link { .. } | Thing::Cgroup { .. }, _) => None,
    }
}

fn recorded(things: &[Thing]) -> impl Iterator<Item = Identity> {
    things.iter().filter_map(|thing| match thing {
        Thing::Process { identity, .. } => Some(*identity),
        Thing::Link { .. } | Thing::Cgroup { .. } => None,
    })
}

/// Those written down, those that carry the mark, and those in the instance's control groups.
fn processes_of(folder: &Path, things: &[Thing], groups: &[&str]) -> Vec<Identity> {
    let marked = process::marked(MARK, &folder.to_string_lossy());
    let inside = groups.iter().flat_map(|group| cgroups::members(group)).filter_map(Identity::of);
    recorded(things).chain(marked).chain(inside).filter(|identity| identity.is_alive()).collect()
}

/// A bridge's ports go with it: their other ends have gone with the nodes, and they follow in their own time.
fn remove_link(name: &str) -> Result<(), String> {
    let exists = |name: &str| Path::new("/sys/class/net").join(name).exists();
    if !exists(name) {
        return Ok(());
    }
    match command::run("ip", ["link", "delete", name]) {
        Ok(_) => Ok(()),
        Err(_) if !exists(name) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn unmount_below(folder: &Path) -> Result<(), String> {
    let mounts = procfs::process::Process::myself()
        .and_then(|own| own.mountinfo())
        .map_err(|error| error.to_string())?;
    let mut points: Vec<_> =
        mounts.into_iter().map(|mount| mount.mount_point).filter(|point| point.starts_with(folder)).collect();
    // The deepest first.
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        umount2(&point, MntFlags::MNT_DETACH)
            .map_err(|error| format!("{} stays mounted: {error}", point.display()))?;
    }
    Ok(())
}

fn tidy(name: &str) -> Result<(), TeardownError> {
    folder::tidy().map_err(|error: InstanceError| TeardownError {
        instance: name.to_owned(),
        failures: vec![error.to_string()],
    })
}
