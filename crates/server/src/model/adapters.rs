//! The adapters that a model is served with: those of a folder, and what was added and removed since.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread;

use cascadia_engine::{AdapterHandle, AdapterStatus, AdapterStore, EngineError};

use super::frontend::{Caller, LATEST};
use crate::error::{ApiError, ServerError};
use crate::request::validate::{Given, shortened};

/// The most characters of a name.
const MAX_NAME: usize = 64;
/// The most bytes with which a request names adapters and their weights.
const MAX_SELECTION: usize = 1024;
/// How the name of a GGUF adapter ends.
const GGUF: &str = "gguf";

/// Adapters of one folder by name. Clients may add, replace and remove them, and reach no other folder.
#[derive(Clone)]
pub struct ServedAdapters {
    store: AdapterStore,
    /// Free of links, so that paths can be compared with it.
    folder: PathBuf,
}

impl ServedAdapters {
    /// Opens every adapter of a folder: each of its sub-folders and `.gguf` files is one.
    pub fn open(store: AdapterStore, folder: &Path) -> Result<ServedAdapters, ServerError> {
        let unreadable = |error: io::Error| {
            let problem = format!("{error}; give a folder with a sub-folder for each adapter");
            refused("the folder of adapters", folder, problem)
        };
        let found = scan(folder).map_err(unreadable)?;
        if let Some(pair) = found.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let problem = format!("it has the name of {}; rename one of them", pair[0].path.display());
            return Err(refused("the adapter", &pair[1].path, problem));
        }
        let adapters = ServedAdapters { store, folder: folder.canonicalize().map_err(unreadable)? };
        // Each is read and checked whole, and there may be a thousand.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let part = found.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let parts = found.chunks(part);
            let open = |part: &[FoundAdapter]| part.iter().try_for_each(|found| adapters.open_found(found));
            let opening: Vec<_> = parts.map(|part| scope.spawn(move || open(part))).collect();
            opening.into_iter().try_for_each(|part| part.join().expect("opening an adapter does not panic"))
        })?;
        tracing::info!(adapters = found.len(), folder = %folder.display(), "opened adapters");
        Ok(adapters)
    }

    /// Opens one of those that the folder has.
    fn open_found(&self, FoundAdapter { name, path }: &FoundAdapter) -> Result<(), ServerError> {
        let added = check_name(name).and_then(|()| {
            let inside = path.file_name().and_then(|entry| self.inside(Path::new(entry)));
            let inside = inside.ok_or("it is a link that leads out of the folder; copy the adapter into it")?;
            self.store.insert(name, &inside).map_err(|error| error.to_string())
        });
        added.map(drop).map_err(|problem| refused("the adapter", path, problem))
    }

    /// All of them, and what is in memory.
    pub(crate) fn store(&self) -> &AdapterStore {
        &self.store
    }

    /// The adapters that a request names, such as `pepys` or `pepys:0.7+rust:0.3`.
    pub(crate) fn select(&self, selection: &str, caller: &Caller) -> Result<AdapterHandle, ApiError> {
        let unknown = || {
            let selection = shortened(selection);
            ApiError::no_model(format!("there is no adapter `{selection}` that you may use; see /v1/models"))
        };
        if selection.len() > MAX_SELECTION {
            return Err(unknown());
        }
        match self.store.select(selection) {
            Ok(handle) if handle.names().all(|name| caller.may_use(name)) => Ok(handle),
            Err(error @ EngineError::Adapter { .. }) if caller.adapters.is_none() => {
                Err(ApiError::no_model(format!("{error}; see /v1/models")))
            }
            // Those who may not use an adapter are not told whether there is one.
            Ok(_) | Err(EngineError::Adapter { .. }) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens an adapter of the folder under a name, which may be that of another; its path is the name unless it is given.
    /// Takes time, so not on a thread that serves connections.
    pub(crate) fn add(&self, name: Given<&str>, path: Given<Option<&str>>) -> Result<AdapterStatus, ApiError> {
        check_name(name.value).map_err(|problem| ApiError::invalid(name.name, problem))?;
        let wanted = path.value.map_or_else(|| self.usual_path(name.value), PathBuf::from);
        let inside = self.inside(&wanted).ok_or_else(|| {
            let shown = shortened(&wanted.to_string_lossy());
            let advice = "give a path relative to that folder, without `..`, and without links that lead out of it";
            ApiError::invalid(path.name, format!("`{shown}` is not in the server's folder of adapters; {advice}"))
        })?;
        let status = self.store.insert(name.value, &inside);
        let status = status.map_err(|error| ApiError::invalid(path.name, error.to_string()))?;
        tracing::info!(adapter = name.value, id = %status.id, "added an adapter");
        Ok(status)
    }

    /// Removes an adapter; requests that use it keep it. Returns whether there was one.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let removed = self.store.remove(name);
        if removed {
            tracing::info!(adapter = name, "removed an adapter");
        }
        removed
    }

    /// Where an adapter lies in the folder.
    pub(crate) fn path_inside(&self, adapter: &AdapterStatus) -> String {
        let path = adapter.path.strip_prefix(&self.folder).unwrap_or(Path::new(&adapter.name));
        path.to_string_lossy().into_owned()
    }

    /// Where an adapter of this name is found if nobody says where it is.
    fn usual_path(&self, name: &str) -> PathBuf {
        let file = PathBuf::from(format!("{name}.{GGUF}"));
        if !self.folder.join(name).exists() && self.folder.join(&file).is_file() { file } else { PathBuf::from(name) }
    }

    /// Where a path leads, if it leads to something below the folder.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        if path.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        let found = self.folder.join(path).canonicalize().ok()?;
        (found.starts_with(&self.folder) && found != self.folder).then_some(found)
    }
}

/// Something in a folder that should be an adapter.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FoundAdapter {
    name: String,
    path: PathBuf,
}

/// The sub-folders and `.gguf` files of a folder by name; hidden ones and other files are passed over.
fn scan(folder: &Path) -> io::Result<Vec<FoundAdapter>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_gguf = path.extension().is_some_and(|extension| extension == GGUF);
        let name = match path.is_dir() {
            true => path.file_name(),
            false => path.file_stem().filter(|_| is_gguf),
        };
        let Some(name) = name.map(|name| name.to_string_lossy().into_owned()) else { continue };
        if !name.starts_with('.') {
            found.push(FoundAdapter { name, path });
        }
    }
    found.sort();
    Ok(found)
}

/// Why an adapter cannot have this name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(fits) {
        let shown = shortened(name);
        let allowed = "letters, digits, `.`, `_` and `-`, and does not begin with `.`";
        return Err(format!("`{shown}` is no name of an adapter; one has 1 to {MAX_NAME} {allowed}"));
    }
    match name == LATEST {
        true => Err(format!("`{LATEST}` is no name of an adapter: after a model's name it means the model itself")),
        false => Ok(()),
    }
}

fn refused(what: &'static str, path: &Path, problem: String) -> ServerError {
    ServerError::File { what, path: path.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words() {
        let long = "a".repeat(MAX_NAME);
        for name in ["a", "pepys", "Pepys-1.5_b", "1", "-", &long] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", ".a", "a/b", "a b", "a:1", "a+b", "é", "a\n", "latest", &format!("{long}a")] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn folders_and_gguf_files_are_adapters() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rust", ".git", "pepys"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for name in ["README.md", "small.gguf", "model.safetensors", ".gguf"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found: Vec<String> = scan(folder.path()).unwrap().into_iter().map(|found| found.name).collect();
        assert_eq!(found, ["pepys", "rust", "small"]);
    }
}
