//! The cache folder that all Hugging Face tools share, for one repository.

use std::io;
use std::iter;
use std::path::{Path, PathBuf};

use crate::fetch::is_commit;
use crate::os;

/// `models--org--name` with its three folders: `blobs` holds content by its tag, `snapshots` has a folder per commit
/// with links to the blobs under the names of the files, and `refs` says which commit `main` was last.
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The part of the cache at `root` that belongs to the model `id`.
    pub(crate) fn new(root: &Path, id: &str) -> Cache {
        Cache { folder: root.join(format!("models--{}", id.replace('/', "--"))) }
    }

    /// The parts that there are, by the models that they belong to.
    pub(crate) fn all(root: &Path) -> Vec<(String, Cache)> {
        let model = |(name, folder): (String, PathBuf)| {
            let (organisation, name) = name.strip_prefix("models--")?.split_once("--")?;
            Some((format!("{organisation}/{name}"), Cache { folder }))
        };
        entries(root).into_iter().filter_map(model).collect()
    }

    /// Deletes files of a commit with their content, and everything once no file is left.
    pub(crate) fn remove(&self, commit: &str, files: &[PathBuf]) -> io::Result<()> {
        let blobs = self.folder.canonicalize()?.join("blobs");
        for file in files {
            // Where links are copies, the content goes with the folder; what a link finds elsewhere is not ours.
            if let Some(content) = file.canonicalize().ok().filter(|content| content.starts_with(&blobs)) {
                std::fs::remove_file(content)?;
            }
            std::fs::remove_file(file)?;
        }
        match self.files(commit).is_empty() {
            true => std::fs::remove_dir_all(&self.folder),
            false => Ok(()),
        }
    }

    /// The commit that was fetched last, as a whole.
    pub(crate) fn commit(&self) -> Option<String> {
        let commit = std::fs::read_to_string(self.reference()).ok()?;
        is_commit(&commit).then_some(commit)
    }

    /// Makes `commit` the one that was fetched last.
    pub(crate) fn remember(&self, commit: &str) -> io::Result<()> {
        let folder = self.folder.join("refs");
        std::fs::create_dir_all(&folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        io::Write::write_all(&mut file, commit.as_bytes())?;
        file.persist(self.reference()).map_err(|error| error.error)?;
        Ok(())
    }

    /// The folder of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Where the content with this tag is, or will be.
    pub(crate) fn blob(&self, tag: &str) -> PathBuf {
        self.folder.join("blobs").join(tag)
    }

    /// Where the content with this tag grows while it arrives.
    pub(crate) fn partial(&self, tag: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{tag}.incomplete"))
    }

    /// Gives the content with this tag the name `file` in a commit.
    pub(crate) fn link(&self, commit: &str, file: &str, tag: &str) -> io::Result<PathBuf> {
        let pointer = self.snapshot(commit).join(file);
        if let Some(parent) = pointer.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // From the folder of the file up to that of the repository: cache folders may be moved.
        let up = iter::repeat_n("..", 2 + file.matches('/').count());
        let target: PathBuf = up.chain(["blobs", tag]).collect();
        if pointer.is_symlink() {
            std::fs::remove_file(&pointer)?;
        }
        os::link_file(&target, &self.blob(tag), &pointer)?;
        Ok(pointer)
    }

    /// The files of a commit that are there, those in folders with the folder's name before theirs.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        let mut files = Vec::new();
        for (name, path) in entries(&self.snapshot(commit)) {
            if path.is_dir() {
                files.extend(entries(&path).into_iter().map(|(inner, _)| format!("{name}/{inner}")));
            } else {
                files.push(name);
            }
        }
        files
    }

    fn reference(&self) -> PathBuf {
        self.folder.join("refs").join("main")
    }
}

/// Names and paths of what is in a folder, sorted; none when it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let named = |entry: std::fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
    let mut entries: Vec<_> = folder.read_dir().into_iter().flatten().flatten().filter_map(named).collect();
    entries.sort_unstable();
    entries
}
