//! A model as the hub has it, without its weights: settings, and files with nothing behind their headers.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use cascadia_weights::gguf::check_header;
use cascadia_weights::hf_folder::{INDEX_FILE, shard_names};

use crate::cache::Cache;
use crate::choose::{Choice, choose};
use crate::client::{Client, RequestKind};
use crate::download::Download;
use crate::explain::{Explain, Failure};
use crate::fetch::{cached, list};
use crate::{HubError, HubModel, HubOptions};

/// Settings that say how a model is built.
const SETTINGS: [&str; 2] = ["config.json", INDEX_FILE];
/// The most bytes of a header of safetensors, as its reader has it.
const MOST_HEADER: u64 = 16 << 20;
/// How much of a GGUF file is asked for at first, and at most: vocabularies make headers long.
const GGUF_HEADERS: [usize; 5] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
/// Bytes after what was fetched of a GGUF file that no header can have: lengths that end beyond every file.
const GUARD: [u8; 4096] = [0xff; 4096];

/// Names, shapes and formats of a model, for [`cascadia_weights::ModelFiles::open`]: files in `folder` that are as long as the real ones
/// and have their headers, but none of their numbers. A model that is in the cache needs no network.
pub fn outline(model: &HubModel, options: &HubOptions, folder: &Path) -> Result<PathBuf, HubError> {
    let cache = Cache::new(&options.cache, model.id());
    if let Some(path) = cached(model, &cache) {
        return Ok(path);
    }
    options.check_online(model)?;
    let explain = Explain { model, endpoint: &options.endpoint };
    let client = Client::new(options);
    let (commit, files) = list(&client, model).map_err(|failure| explain.failure(None, &failure))?;
    let choice = choose(&files, model.selection()).map_err(|problem| explain.no_choice(problem))?;
    let explained = |file: &str, failure: Failure| explain.failure(Some(file), &failure);
    let download =
        Download { client: &client, cache: &cache, commit: &commit, sha256: None, explain, progress: &mut |_| {} };
    let outline = Outline { download: &download, folder };
    match choice {
        Choice::Gguf(parts) => {
            parts.iter().try_for_each(|part| outline.gguf(part).map_err(|failure| explained(part, failure)))?;
            Ok(folder.join(&parts[0]))
        }
        Choice::Safetensors { small_files, index, weights } => {
            let settings = small_files.iter().filter(|file| SETTINGS.contains(&file.as_str()));
            for file in settings {
                outline.settings(file).map_err(|failure| explained(file, failure))?;
            }
            let weights = if index { shard_names(folder)? } else { weights };
            weights
                .iter()
                .try_for_each(|file| outline.safetensors(file).map_err(|failure| explained(file, failure)))?;
            Ok(folder.to_owned())
        }
    }
}

struct Outline<'a> {
    download: &'a Download<'a>,
    folder: &'a Path,
}

impl Outline<'_> {
    fn settings(&self, file: &str) -> Result<(), Failure> {
        let value = self.download.client.json(&self.download.address(file))?;
        fs::write(self.folder.join(file), value.to_string()).map_err(Failure::Disk)
    }

    fn safetensors(&self, file: &str) -> Result<(), Failure> {
        let (size, mut content) = self.open(file)?;
        let mut length = [0; 8];
        content.read_exact(&mut length).map_err(ureq::Error::from)?;
        let most = u64::from_le_bytes(length).min(MOST_HEADER);
        let mut header = length.to_vec();
        content.take(most).read_to_end(&mut header).map_err(ureq::Error::from)?;
        self.write(file, &[&header], size).map(drop)
    }

    /// Takes more and more of a file until what it has is all of its header.
    fn gguf(&self, file: &str) -> Result<(), Failure> {
        let (size, mut content) = self.open(file)?;
        let mut header = Vec::new();
        let mut problem = String::new();
        for most in GGUF_HEADERS {
            let more = most.saturating_sub(header.len()) as u64;
            content.by_ref().take(more).read_to_end(&mut header).map_err(ureq::Error::from)?;
            let path = self.write(file, &[&header, &GUARD], size)?;
            match check_header(&path) {
                Ok(()) => return Ok(()),
                Err(error) if header.len() as u64 >= size => return Err(Failure::Invalid(error.to_string())),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(Failure::Invalid(problem))
    }

    /// The length of a file, and its content.
    fn open(&self, file: &str) -> Result<(u64, impl Read + use<>), Failure> {
        let address = self.download.address(file);
        let size = self.download.properties(&address)?.size;
        let answer = self.download.client.send(&address, RequestKind::All)?;
        Ok((size, answer.into_body().into_reader()))
    }

    /// Writes a file of `size` bytes of which only the first are known; the rest takes no room.
    fn write(&self, file: &str, parts: &[&[u8]], size: u64) -> Result<PathBuf, Failure> {
        let path = self.folder.join(file);
        let write = || {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            let mut out = File::create(&path)?;
            parts.iter().try_for_each(|part| out.write_all(part))?;
            out.set_len(size)
        };
        write().map_err(Failure::Disk)?;
        Ok(path)
    }
}
