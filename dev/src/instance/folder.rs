//! The folders of all instances on this machine, and who has which number.
//!
//! An instance's folder appears whole, with its header in it, and its header is the last file to go. Numbers are
//! given out under the machine's lock.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::InstanceError;
use crate::lock::Lock;
use crate::places;
use crate::process::Identity;

/// A number becomes the third byte of addresses 10.99.N.0/24 and is added to the second of 10.100+N.0.0/16.
pub(super) const NUMBERS: Range<u8> = 0..100;
const HEADER: &str = "instance.json";
const MACHINE_LOCK: &str = ".lock";
/// Long enough for a purpose and a process number, short enough for every socket's path below.
const LONGEST_NAME: usize = 24;

/// Whom an instance lives for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// It stays until it is taken down.
    Nobody,
    /// It goes when this process has gone.
    Process(Identity),
}

impl Owner {
    pub(super) fn is_dead(self) -> bool {
        match self {
            Owner::Nobody => false,
            Owner::Process(identity) => !identity.is_alive(),
        }
    }
}

/// An instance that has a folder on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunningInstance {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u8,
    /// Its folder.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Whom it lives for.
    pub owner: Owner,
}

/// Every instance on this machine, sorted by name.
#[must_use]
pub fn instances() -> Vec<RunningInstance> {
    let mut found: Vec<RunningInstance> = folders().iter().filter_map(|folder| read_header(folder)).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The instance of this name.
pub(super) fn find(name: &str) -> Option<RunningInstance> {
    read_header(&places::instances_folder().join(name))
}

/// Folders that may be instances; those that begin with a dot are not.
fn folders() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(places::instances_folder()) else { return Vec::new() };
    let folders =
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .collect()
}

fn read_header(folder: &Path) -> Option<RunningInstance> {
    let text = fs::read_to_string(folder.join(HEADER)).ok()?;
    let header: RunningInstance = serde_json::from_str(&text).ok()?;
    Some(RunningInstance { folder: folder.to_owned(), ..header })
}

/// Makes a folder for an instance of this process, under a name that is not taken.
pub(super) fn create(purpose: &str, owner: Owner) -> Result<RunningInstance, InstanceError> {
    check_name(purpose)?;
    let _lock = lock_machine()?;
    let process = std::process::id();
    let mut names = (0..).map(|count: u32| format!("{purpose}-{process}-{count}"));
    let is_free = |name: &String| !places::instances_folder().join(name).exists();
    let name = names.find(is_free).unwrap_or_default();
    settle(name, owner)
}

/// The folder of the instance of this name that outlives its starter, made when it is not there, and the lock of whoever
/// works on it.
pub(super) fn open(name: &str) -> Result<(RunningInstance, Lock), InstanceError> {
    check_name(name)?;
    let _lock = lock_machine()?;
    let work = Lock::try_acquire(&lock_path(name))?.ok_or_else(|| InstanceError::Busy(name.to_owned()))?;
    match find(name) {
        None => Ok((settle(name.to_owned(), Owner::Nobody)?, work)),
        Some(RunningInstance { owner: Owner::Process(owner), .. }) => {
            Err(InstanceError::Owned { name: name.to_owned(), pid: owner.pid() })
        }
        Some(found) => Ok((found, work)),
    }
}

/// Gives an instance a number and a folder. The machine's lock is held.
fn settle(name: String, owner: Owner) -> Result<RunningInstance, InstanceError> {
    let taken: Vec<u8> = instances().iter().map(|other| other.number).collect();
    let number = NUMBERS
        .filter(|number| !taken.contains(number))
        .find(|number| !is_routed(*number))
        .ok_or(InstanceError::Full)?;
    let root = places::instances_folder();
    let (made, folder) = (root.join(format!(".new-{}", std::process::id())), root.join(&name));
    let instance = RunningInstance { name, number, folder, owner };
    let write = || -> io::Result<()> {
        // Neither of them is an instance, or the machine's lock would not be ours.
        for debris in [&made, &instance.folder] {
            if debris.exists() {
                fs::remove_dir_all(debris)?;
            }
        }
        fs::create_dir(&made)?;
        let header = serde_json::to_vec(&instance).map_err(io::Error::other)?;
        fs::write(made.join(HEADER), header)?;
        fs::rename(&made, &instance.folder)
    };
    match write() {
        Ok(()) => Ok(instance),
        Err(source) => Err(InstanceError::Files { path: instance.folder, source }),
    }
}

/// Removes a folder, its header last.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == HEADER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir_all(folder)
}

/// Removes what creations that were cut off left, and the folder of all instances once there is none.
pub(super) fn tidy() -> Result<(), InstanceError> {
    let root = places::instances_folder();
    if !root.exists() {
        return Ok(());
    }
    let lock = lock_machine()?;
    let failed = |source| InstanceError::Files { path: root.clone(), source };
    for entry in fs::read_dir(&root).map_err(failed)?.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(".new-") {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        }
    }
    for folder in folders().iter().filter(|folder| !folder.join(HEADER).exists()) {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    if folders().is_empty() {
        lock.remove();
        // Fails, as it should, when somebody has begun to make something there.
        let _ = fs::remove_dir(&root);
    }
    Ok(())
}

/// The lock that numbers are given out under.
fn lock_machine() -> Result<Lock, InstanceError> {
    let root = places::instances_folder();
    loop {
        fs::create_dir_all(&root).map_err(|source| InstanceError::Files { path: root.clone(), source })?;
        match Lock::acquire(&root.join(MACHINE_LOCK)) {
            Ok(lock) => return Ok(lock),
            // The last instance went and took the folder with it.
            Err(_) if !root.exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The lock of whoever changes an instance as a whole. It lies beside the folder, which may go.
pub(super) fn lock_path(name: &str) -> PathBuf {
    places::instances_folder().join(format!(".{name}.lock"))
}

/// Whether this machine already has a way to addresses that the number stands for.
fn is_routed(number: u8) -> bool {
    let Ok(routes) = procfs::net::route() else { return false };
    routes.iter().any(|route| {
        let [first, second, third, _] = route.destination.octets();
        // A route to everything, or to the whole of 10.0.0.0/8, is no sign of use.
        first == 10 && ((second == 99 && third == number) || second == 100 + number)
    })
}

fn check_name(name: &str) -> Result<(), InstanceError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if starts_well && name.len() <= LONGEST_NAME && name.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(InstanceError::Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_not_make_a_folder_or_a_host_are_refused() {
        for name in ["", "Berth", "-a", "a/b", ".", "a".repeat(25).as_str(), "1a"] {
            assert!(matches!(check_name(name), Err(InstanceError::Name(_))), "{name}");
        }
        for name in ["a", "berth", "run-2"] {
            check_name(name).unwrap();
        }
    }

    #[test]
    fn a_dead_owner_is_told_from_a_living_one() {
        assert!(!Owner::Nobody.is_dead());
        assert!(!Owner::Process(Identity::own()).is_dead());
    }
}
