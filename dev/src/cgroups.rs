//! Control groups of a node: a root of its own in every hierarchy, so that kubelets do not take each other's pods
//! for orphans.
//!
//! Knows the three layouts there are: version 1, version 2, and version 1 with an empty version 2 beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// What kubelet does not start without.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// What else a node gets on version 2, where it is there.
const WELCOME: [&str; 2] = ["io", "hugetlb"];

/// A control group that could not be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} the control group {path}")]
pub struct CgroupError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// The top folder of each hierarchy.
fn hierarchies() -> Vec<PathBuf> {
    if is_unified() {
        return vec![PathBuf::from(ROOT)];
    }
    let Ok(folders) = fs::read_dir(ROOT) else { return Vec::new() };
    let mut found: Vec<PathBuf> = folders
        .filter_map(Result::ok)
        // A link is a second name of a hierarchy that is there already.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect();
    found.sort();
    found
}

/// The controllers that kubelet needs and this machine does not have.
pub(crate) fn missing_controllers() -> Vec<&'static str> {
    let has: Vec<String> = if is_unified() {
        let list = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect()
    } else {
        let names = hierarchies().into_iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        names.flat_map(|name| name.split(',').map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    NEEDED.into_iter().filter(|name| !has.iter().any(|had| had == name)).collect()
}

/// Makes a root of this name in every hierarchy.
///
/// # Errors
/// When a folder cannot be made or prepared.
pub(crate) fn create(name: &str) -> Result<(), CgroupError> {
    if is_unified() {
        delegate(Path::new(ROOT))?;
    }
    for hierarchy in hierarchies() {
        let folder = hierarchy.join(name);
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        if is_unified() {
            delegate(&folder)?;
        } else {
            inherit_cpuset(&hierarchy, &folder)?;
        }
    }
    Ok(())
}

/// Version 2: lets the folders below have the controllers.
fn delegate(folder: &Path) -> Result<(), CgroupError> {
    let path = folder.join("cgroup.controllers");
    let has = fs::read_to_string(&path).map_err(failed("read", &path))?;
    let wanted = NEEDED.iter().chain(&WELCOME);
    let given: Vec<String> = wanted
        .filter(|name| has.split_whitespace().any(|had| had == **name))
        .map(|name| format!("+{name}"))
        .collect();
    let path = folder.join("cgroup.subtree_control");
    fs::write(&path, given.join(" ")).map_err(failed("delegate", &path))
}

/// Version 1: a new cpuset is empty, and nothing can enter an empty one.
fn inherit_cpuset(hierarchy: &Path, folder: &Path) -> Result<(), CgroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (above, own) = (hierarchy.join(file), folder.join(file));
        if own.exists() {
            let value = fs::read(&above).map_err(failed("read", &above))?;
            fs::write(&own, value).map_err(failed("prepare", &own))?;
        }
    }
    Ok(())
}

/// Removes the roots of this name and everything below them, as far as nothing runs there any more.
///
/// # Errors
/// The first folder that does not go; the others are removed all the same.
pub(crate) fn remove(name: &str) -> Result<(), CgroupError> {
    let mut outcome = Ok(());
    for hierarchy in hierarchies() {
        let removed = remove_below(&hierarchy.join(name));
        outcome = outcome.and(removed);
    }
    outcome
}

/// The top folder of the hierarchy in which every process is counted, whatever else is.
pub(crate) fn of_processes() -> PathBuf {
    if is_unified() { PathBuf::from(ROOT) } else { Path::new(ROOT).join("pids") }
}

/// The processes in the control groups of this name and below.
pub(crate) fn members(name: &str) -> Vec<i32> {
    hierarchies().iter().flat_map(|hierarchy| members_below(&hierarchy.join(name))).collect()
}

/// The processes in a control group and below.
pub(crate) fn members_below(folder: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(processes.lines().filter_map(|line| line.parse::<i32>().ok()));
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let below =
            entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    found
}

/// Removes a control group and everything below it, as far as nothing runs there any more.
///
/// # Errors
/// The first folder that does not go; the others are removed all the same.
pub(crate) fn remove_below(folder: &Path) -> Result<(), CgroupError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let mut outcome = Ok(());
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            outcome = outcome.and(remove_below(&entry.path()));
        }
    }
    match fs::remove_dir(folder) {
        Ok(()) => outcome,
        Err(error) if error.kind() == io::ErrorKind::NotFound => outcome,
        Err(error) => outcome.and(Err(failed("remove", folder)(error))),
    }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> CgroupError {
    move |source| CgroupError { action, path: path.to_owned(), source }
}
