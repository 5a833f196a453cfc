//! Berth's programs as images, each from its Containerfile.

use std::fs;
use std::path::Path;

use super::{InstallError, at};
use crate::command;
use crate::fingerprint::Fingerprint;
use crate::images::Image;
use crate::places;

/// The programs that run in pods.
pub(super) const PROGRAMS: [&str; 3] = ["berth-brain", "berth-sdk", "berth-agent"];

/// The machine's bundle of authorities, for programs that speak with somebody outside of the cluster.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A program's image.
pub(super) struct ProgramImage {
    /// Its name in the manifests.
    pub(super) name: String,
    /// Another one for each build, so that what was built anew is rolled out.
    pub(super) tag: String,
    pub(super) image: Image,
}

impl ProgramImage {
    /// Builds it from the program in this folder. Blocks.
    pub(super) fn build(programs: &Path, program: &str) -> Result<Self, InstallError> {
        let containerfile = places::source_folder().join(format!("images/{program}.Containerfile"));
        let text = fs::read(&containerfile).map_err(at(&containerfile))?;
        let name = format!("localhost/{program}");
        let tag = format!("dev-{}", build_of(&programs.join(program))?.with(text));
        let folder = tempfile::tempdir().map_err(at(Path::new("a temporary folder")))?;
        let stripped = folder.path().join(program);
        strip(&programs.join(program), &stripped)?;
        let files = [stripped.as_path(), Path::new(AUTHORITIES)];
        let image = Image::of_files(&containerfile, &files, &format!("{name}:{tag}"))?;
        Ok(Self { name, tag, image })
    }

    pub(super) fn reference(&self) -> &str {
        self.image.reference()
    }
}

/// Two builds of a program differ in time or length.
fn build_of(program: &Path) -> Result<Fingerprint, InstallError> {
    let file = fs::metadata(program).map_err(at(program))?;
    let time = file.modified().map_err(at(program))?;
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(Fingerprint::new().with(since.as_nanos().to_le_bytes()).with(file.len().to_le_bytes()))
}

/// What a debugger would want is three quarters of a debug build, and every node has to take it in.
fn strip(program: &Path, to: &Path) -> Result<(), InstallError> {
    let words = ["--strip-debug".as_ref(), "-o".as_ref(), to.as_os_str(), program.as_os_str()];
    command::run("strip", words).map(drop).map_err(InstallError::Command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_built_anew_gets_another_tag() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("berth-agent");
        fs::write(&program, "one").unwrap();
        let first = build_of(&program).unwrap().to_string();
        assert_eq!(build_of(&program).unwrap().to_string(), first);
        fs::write(&program, "other").unwrap();
        assert_ne!(build_of(&program).unwrap().to_string(), first);
    }
}
