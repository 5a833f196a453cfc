//! Berth's programs where any user may run them: those in a home folder are out of reach of everybody else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{InstallError, at};

/// Copies a program into `folder`, unless the same build is there.
pub(super) fn place(program: &Path, folder: &Path) -> Result<PathBuf, InstallError> {
    let path = folder.join(program.file_name().unwrap_or_default());
    let wanted = fs::metadata(program).map_err(at(program))?;
    let is_there = fs::metadata(&path).is_ok_and(|there| {
        let same_time =
            there.modified().ok().zip(wanted.modified().ok()).is_some_and(|(there, wanted)| there == wanted);
        same_time && there.len() == wanted.len()
    });
    if !is_there {
        // Written beside and moved: a running program's file cannot be written to.
        let partial = path.with_extension("part");
        let copy = || {
            fs::copy(program, &partial)?;
            fs::set_permissions(&partial, fs::Permissions::from_mode(0o755))?;
            fs::File::options().write(true).open(&partial)?.set_modified(wanted.modified()?)?;
            fs::rename(&partial, &path)
        };
        copy().map_err(at(program))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_program_is_placed_once_and_again_when_it_was_built_anew() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = from.path().join("berth-agent");
        let placed_inode = || fs::metadata(place(&program, to.path()).unwrap()).unwrap().ino();
        fs::write(&program, "one").unwrap();
        let first = placed_inode();
        assert_eq!(placed_inode(), first);
        fs::write(&program, "other").unwrap();
        assert_ne!(placed_inode(), first);
        assert_eq!(fs::read_to_string(to.path().join("berth-agent")).unwrap(), "other");
    }
}
