//! Programs in Go, built by Go's own tool from a folder with a `go.mod`, kept in the cache under a name made from
//! everything that decides their content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, CommandError};
use crate::fingerprint::Fingerprint;
use crate::lock::{Lock, LockError};
use crate::places;

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum GoError {
    /// There is no Go.
    #[error("Go is needed, and there is no `go` here")]
    NoGo,
    /// The source, or the cache.
    #[error("could not use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Go says no.
    #[error("could not build a program in Go")]
    Tool(#[source] CommandError),
    /// Nobody can build at the same time as another.
    #[error("could not lock the cache")]
    Lock(#[source] LockError),
}

/// The program whose source is in this folder and in none below; it is built when the cache has none. Blocks.
///
/// # Errors
/// When it is not there and cannot be built.
pub fn program(source: &Path) -> Result<PathBuf, GoError> {
    let go = places::find_program("go").ok_or(GoError::NoGo)?;
    let version = command::run(&go.to_string_lossy(), ["env", "GOVERSION"]).map_err(GoError::Tool)?;
    let content = content_of(source, Fingerprint::new().with(version))?;
    let cache = places::cache_folder();
    let program = cache.join(format!("go-{content}"));
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&cache).map_err(at(&cache))?;
    let _lock = Lock::acquire(&cache.join("go.lock")).map_err(GoError::Lock)?;
    if program.exists() {
        return Ok(program);
    }
    let draft = cache.join(format!("go-{content}.draft"));
    let mut build = Command::new(&go);
    build.current_dir(source).env("CGO_ENABLED", "0");
    build.args(["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(&draft).arg(".");
    command::finish(build).map_err(GoError::Tool)?;
    fs::rename(&draft, &program).map_err(at(&program))?;
    Ok(program)
}

/// The names and bytes of all files, in the order of their names.
fn content_of(folder: &Path, mut content: Fingerprint) -> Result<Fingerprint, GoError> {
    let entries =
        fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(at(folder))?;
    let mut paths: Vec<PathBuf> =
        entries.iter().map(fs::DirEntry::path).filter(|path| path.is_file()).collect();
    paths.sort();
    for path in paths {
        content = content.with(path.file_name().unwrap_or_default().as_encoded_bytes());
        content = content.with(fs::read(&path).map_err(at(&path))?);
    }
    Ok(content)
}

fn at(path: &Path) -> impl Fn(io::Error) -> GoError {
    move |source| GoError::File { path: path.to_owned(), source }
}
