//! Where things are on this machine. The only file of this crate that reads the environment.

use std::env;
use std::path::{Path, PathBuf};

/// What is made once and kept: the programs of Kubernetes, and images. `BERTH_CACHE`, or `~/.cache/berth`.
#[must_use]
pub fn cache_folder() -> PathBuf {
    match env::var_os("BERTH_CACHE") {
        Some(folder) => PathBuf::from(folder),
        None => home_folder().join(".cache/berth"),
    }
}

/// Where the clusters on this machine keep their state. `BERTH_DEV_DIR`, or a folder of the user's under
/// `/var/tmp`, which is on a disk (overlayfs needs that) and short (a socket's path has 107 bytes at most).
#[must_use]
pub fn instances_folder() -> PathBuf {
    match env::var_os("BERTH_DEV_DIR") {
        Some(folder) => PathBuf::from(folder),
        None if is_root() => PathBuf::from("/var/tmp/berth-dev"),
        None => PathBuf::from(format!("/var/tmp/berth-dev-{}", rustix::process::getuid().as_raw())),
    }
}

/// The tree that this program was built from: manifests, examples.
#[must_use]
pub fn source_folder() -> &'static Path {
    let this_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    this_crate.parent().unwrap_or(this_crate)
}

/// Where cargo put the programs that were built together with the running one.
#[must_use]
pub fn program_folder() -> PathBuf {
    let here = env::current_exe().unwrap_or_default();
    let folder = here.parent().unwrap_or(Path::new("."));
    // Tests and examples are one folder further down than programs.
    let is_below = folder.file_name().is_some_and(|name| name == "deps" || name == "examples");
    if is_below { folder.parent().unwrap_or(folder).to_owned() } else { folder.to_owned() }
}

/// Whether we run as root, which real nodes need and an API server alone does not.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The search path that daemons are given: the machine's own folders first, then the user's.
pub(crate) fn search_path() -> String {
    let own = env::var("PATH").unwrap_or_default();
    format!("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{own}")
}

pub(crate) fn home_folder() -> PathBuf {
    env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from)
}

/// The first program of this name on the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// How the user asked for daemons to log, handed on to them.
pub(crate) fn log_filter() -> Option<String> {
    env::var("RUST_LOG").ok()
}
