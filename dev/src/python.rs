//! Packages of Python, installed by its own tool, kept in the cache in a folder named after everything that decides its
//! content, and used by way of `PYTHONPATH`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, CommandError};
use crate::fingerprint::Fingerprint;
use crate::lock::{Lock, LockError};
use crate::places;

/// Why the packages are not there.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// The list of packages, or the cache.
    #[error("could not use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Python or its tool.
    #[error("could not install packages of Python: are python3 and python3-pip there?")]
    Tool(#[source] CommandError),
    /// Nobody can install at the same time as another.
    #[error("could not lock the cache")]
    Lock(#[source] LockError),
}

/// The folder that has the packages of a `requirements.txt`; they are installed when the cache has none.
///
/// # Errors
/// When they are not there and cannot be installed.
pub fn packages(requirements: &Path) -> Result<PathBuf, PythonError> {
    let list = fs::read(requirements).map_err(at(requirements))?;
    let version = command::run("python3", ["--version"]).map_err(PythonError::Tool)?;
    let name = Fingerprint::new().with(&list).with(version);
    let cache = places::cache_folder();
    let folder = cache.join(format!("python-{name}"));
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(&cache).map_err(at(&cache))?;
    let _lock = Lock::acquire(&cache.join("python.lock")).map_err(PythonError::Lock)?;
    if folder.exists() {
        return Ok(folder);
    }
    let draft = cache.join(format!("python-{name}.draft"));
    let mut install = Command::new("python3");
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"])
        .arg("--target")
        .arg(&draft)
        .arg("--requirement")
        .arg(requirements);
    command::finish(install).map_err(PythonError::Tool)?;
    fs::rename(&draft, &folder).map_err(at(&folder))?;
    Ok(folder)
}

fn at(path: &Path) -> impl Fn(io::Error) -> PythonError {
    let path = path.to_owned();
    move |source| PythonError::File { path: path.clone(), source }
}
