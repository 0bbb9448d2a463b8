//! Output files and folders appear whole or not at all: written under a temporary name beside the target,
//! then renamed. Access rights are what the umask leaves, as for any file a program creates.

use crate::{Error, Result};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::{NamedTempFile, TempDir};

/// Writes a file through `fill`, then renames it into place. Errors: [`Error::Io`]; nothing is left behind.
pub fn write_file(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let next = "check that the folder exists, can be written to and has room";
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file: NamedTempFile = tempfile::Builder::new()
        .prefix(".assay-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(Error::io("create a file in", folder, next))?;
    let write = |file: &mut NamedTempFile| {
        let mut buffered = std::io::BufWriter::new(file.as_file_mut());
        fill(&mut buffered)?;
        buffered.flush()
    };
    write(&mut file).map_err(Error::io("write", path, next))?;
    file.persist(path).map_err(|e| Error::io("rename a finished file to", path, next)(e.error))?;
    Ok(())
}

/// Refuses a name that something has. Errors: [`Error::Argument`].
pub fn refuse_taken(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::Argument {
        what: format!("output {}", path.display()),
        expected: "a name that is free".into(),
        found: "something of that name".into(),
        next: "remove it or choose another name".into(),
    })
}

/// Folders that are being filled. The one global of the workspace: a signal has no other way to find them.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the folders that are being filled, for a program that is told to stop. What cannot be removed
/// stays.
pub fn remove_unfinished() {
    for path in unfinished().drain(..) {
        // a thread that still writes may add a file meanwhile; what cannot be removed then stays
        let _ = (0..3).any(|_| std::fs::remove_dir_all(&path).is_ok());
    }
}

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is being filled and appears under its name only when [`NewFolder::finish`] is called.
#[derive(Debug)]
pub struct NewFolder {
    target: PathBuf,
    temporary: TempDir,
}

impl NewFolder {
    /// Starts a folder. Errors: [`Error::Argument`] if `target` exists, [`Error::Io`] if its parent cannot be
    /// written to.
    pub fn create(target: &Path) -> Result<Self> {
        refuse_taken(target)?;
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let next = "name an existing folder that can be written to";
        let temporary = tempfile::Builder::new()
            .prefix(".assay-")
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(parent)
            .map_err(Error::io("create a folder in", parent, next))?;
        unfinished().push(temporary.path().into());
        Ok(Self { target: target.into(), temporary })
    }

    /// Where to write meanwhile.
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Renames the folder into place. Errors: [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        let next = "name a folder that is free and can be written to";
        let rename = Error::io("rename a finished folder to", &self.target, next);
        std::fs::rename(self.temporary.path(), &self.target).map_err(rename)?;
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        // renamed away or about to be removed with `temporary`
        unfinished().retain(|path| path != self.temporary.path());
    }
}
