//! Images from Containerfiles, built without a daemon and without a registry, kept in the cache by their content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::binaries::Binaries;
use crate::command::{self, CommandError};
use crate::fingerprint::Fingerprint;
use crate::lock::{Lock, LockError};
use crate::places;

/// The image of the container that holds a pod's namespaces. Its registry does not exist, and is never asked.
pub(crate) const PAUSE: &str = "berth.local/pause:1";
/// We trust what we have just built, and Debian's own policy may not be installed.
const SIGNATURE_POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Each build of a program is an image of its own: one that nobody has used for so long is not kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An image that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file of it, or of the cache.
    #[error("could not use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The builder says no.
    #[error("could not build the image {reference}")]
    Build {
        /// Its name.
        reference: String,
        /// What the builder says.
        source: CommandError,
    },
    /// The cache is locked for good.
    #[error("could not lock the cache of images")]
    Lock(#[from] LockError),
}

/// An image in an archive that any node can import.
#[derive(Debug, Clone)]
pub struct Image {
    reference: String,
    archive: PathBuf,
}

impl Image {
    /// Builds what the `Containerfile` in `folder` says, under this name. Does nothing when the same content was
    /// built before. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be read or the image cannot be built.
    pub fn build(folder: &Path, reference: &str) -> Result<Self, ImageError> {
        let content = content_of(folder, Fingerprint::new().with(reference))?;
        let cache = places::cache_folder().join("images");
        let archive = cache.join(format!("{}-{content}.tar", reference.replace(['/', ':'], "-")));
        let image = Self { reference: reference.to_owned(), archive };
        if !mark_as_used(&image.archive) {
            fs::create_dir_all(&cache).map_err(at(&cache))?;
            let _lock = Lock::acquire(&cache.join("lock"))?;
            if !image.archive.exists() {
                image.make(folder)?;
                forget_unused(&cache, SystemTime::now())?;
            }
        }
        Ok(image)
    }

    /// Builds what a Containerfile says whose context is just these files, by their last names. Blocks.
    ///
    /// # Errors
    /// As [`Image::build`].
    pub fn of_files(containerfile: &Path, files: &[&Path], reference: &str) -> Result<Self, ImageError> {
        let text = fs::read_to_string(containerfile).map_err(at(containerfile))?;
        Self::of_text(&text, files, reference)
    }

    /// Builds an image of one static program, which is what the image starts. Blocks.
    ///
    /// # Errors
    /// As [`Image::build`].
    pub fn of_program(program: &Path, reference: &str) -> Result<Self, ImageError> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let containerfile = format!("FROM scratch\nCOPY {name} /{name}\nENTRYPOINT [\"/{name}\"]\n");
        Self::of_text(&containerfile, &[program], reference)
    }

    pub(crate) fn pause(binaries: &Binaries) -> Result<Self, ImageError> {
        Self::of_program(&binaries.program("pause"), PAUSE)
    }

    fn of_text(containerfile: &str, files: &[&Path], reference: &str) -> Result<Self, ImageError> {
        let folder = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
        for file in files {
            fs::copy(file, folder.path().join(file.file_name().unwrap_or_default())).map_err(at(file))?;
        }
        fs::write(folder.path().join("Containerfile"), containerfile).map_err(at(folder.path()))?;
        Self::build(folder.path(), reference)
    }

    /// Its name, as pods use it, with `imagePullPolicy: IfNotPresent` or `Never`.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// The archive.
    #[must_use]
    pub fn archive(&self) -> &Path {
        &self.archive
    }

    /// The builder's own storage is a temporary folder: it leaves no image on the machine.
    fn make(&self, folder: &Path) -> Result<(), ImageError> {
        let scratch = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
        let (policy, made) = (scratch.path().join("policy.json"), scratch.path().join("image.tar"));
        fs::write(&policy, SIGNATURE_POLICY).map_err(at(&policy))?;
        let storage = [
            format!("--root={}", scratch.path().join("root").display()),
            format!("--runroot={}", scratch.path().join("run").display()),
            "--storage-driver=vfs".to_owned(),
        ];
        let policy = format!("--signature-policy={}", policy.display());
        let buildah = |words: &[&str]| {
            let words = storage.iter().map(String::as_str).chain(words.iter().copied());
            let outcome = command::run("buildah", words);
            outcome.map_err(|source| ImageError::Build { reference: self.reference.clone(), source })
        };
        let context = folder.to_string_lossy();
        let build =
            ["build", &policy, "--isolation=chroot", "--layers=false", "--format=docker", "--timestamp=0"];
        buildah(&[&build[..], &["--tag", &self.reference, &context]].concat())?;
        let target = format!("docker-archive:{}:{}", made.display(), self.reference);
        buildah(&["push", &policy, &self.reference, &target])?;
        // Another file system may lie between the two.
        let partial = self.archive.with_extension("part");
        fs::copy(&made, &partial).map_err(at(&partial))?;
        fs::rename(&partial, &self.archive).map_err(at(&self.archive))
    }
}

/// Whether the archive is there; its time is that of its last use.
fn mark_as_used(archive: &Path) -> bool {
    let used = fs::File::options().append(true).open(archive);
    used.and_then(|file| file.set_modified(SystemTime::now())).is_ok()
}

/// Removes archives that have not been used for long.
fn forget_unused(cache: &Path, now: SystemTime) -> Result<(), ImageError> {
    for entry in fs::read_dir(cache).map_err(at(cache))? {
        let path = entry.map_err(at(cache))?.path();
        let is_archive = path.extension().is_some_and(|extension| extension == "tar");
        let used = fs::metadata(&path).and_then(|file| file.modified()).unwrap_or(now);
        if is_archive && now.duration_since(used).is_ok_and(|since| since > KEPT) {
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// The names and bytes of all files below, in the order of their names.
fn content_of(folder: &Path, mut content: Fingerprint) -> Result<Fingerprint, ImageError> {
    let entries =
        fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(at(folder))?;
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        content = content.with(path.file_name().unwrap_or_default().as_encoded_bytes());
        content = if path.is_dir() {
            content_of(&path, content)?
        } else {
            content.with(fs::read(&path).map_err(at(&path))?)
        };
    }
    Ok(content)
}

fn at(path: &Path) -> impl Fn(io::Error) -> ImageError {
    move |source| ImageError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_is_used_is_kept() {
        let cache = tempfile::tempdir().unwrap();
        let archive = cache.path().join("a.tar");
        assert!(!mark_as_used(&archive));
        fs::write(&archive, "").unwrap();
        fs::File::options()
            .append(true)
            .open(&archive)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        assert!(mark_as_used(&archive));
        forget_unused(cache.path(), SystemTime::now()).unwrap();
        assert!(archive.exists());
        forget_unused(cache.path(), SystemTime::now() + 2 * KEPT).unwrap();
        assert!(!archive.exists());
    }

    #[test]
    fn an_image_is_known_by_the_bytes_and_names_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let content = || content_of(folder.path(), Fingerprint::new()).unwrap().to_string();
        let empty = content();
        fs::write(folder.path().join("a"), "one").unwrap();
        let one = content();
        fs::write(folder.path().join("a"), "two").unwrap();
        let two = content();
        fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        let renamed = content();
        let all = [&empty, &one, &two, &renamed];
        assert!(all.iter().enumerate().all(|(at, one)| all[at + 1..].iter().all(|other| one != other)));
    }
}
