//! What a command that writes a model may write over.

use std::path::{Path, PathBuf};

use anyhow::bail;
use cascadia_weights::ModelFiles;

use crate::flags::OutputFlags;

impl OutputFlags {
    /// Refuses to replace a file unless the flags say so. Called before any work is done.
    pub(crate) fn check(self, replaced: Option<&Path>) -> anyhow::Result<()> {
        match replaced {
            Some(path) if !self.force => bail!(
                "{} exists already, and would be replaced; choose another name, or pass --force to replace it",
                path.display()
            ),
            _ => Ok(()),
        }
    }
}

/// Refuses an output that is one of the files that are read, whatever the path to it looks like.
pub(crate) fn check_is_not_input(out: &Path, files: &ModelFiles) -> anyhow::Result<()> {
    let Ok(out) = out.canonicalize() else { return Ok(()) };
    let inputs = files.tensors().iter().map(|tensor| tensor.file()).chain([files.path()]);
    let inputs: Vec<PathBuf> = inputs.filter_map(|path| path.canonicalize().ok()).collect();
    if inputs.contains(&out) {
        bail!("{} is the model that is read; choose another output, so that no weights are lost", out.display());
    }
    Ok(())
}
