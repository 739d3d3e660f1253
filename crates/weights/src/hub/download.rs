//! Getting one file through hf-hub, made to continue, to report and to be whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::Progress as HubProgress;
use hf_hub::api::sync::Api;
use hf_hub::{Cache, Repo};

use super::Progress;
use super::explain::{Explain, is_worth_a_retry};
use crate::WeightsError;
use crate::hf_folder::is_plain_name;

/// Pauses before a broken transfer is continued; each continues where the last one stopped.
const RETRY_PAUSES_MS: [u64; 3] = [200, 1000, 3000];

/// What is the same for all files of one model.
pub(super) struct Download<'a> {
    pub(super) api: &'a Api,
    pub(super) cache: &'a Cache,
    pub(super) repository: Repo,
    pub(super) commit: &'a str,
    pub(super) explain: Explain<'a>,
    pub(super) progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Download<'_> {
    /// The path of `file` in the cache, downloading it when it is not there.
    pub(super) fn file(&mut self, file: &str) -> Result<PathBuf, WeightsError> {
        let present = self.cache.repo(self.repository.clone()).pointer_path(self.commit).join(file);
        if present.is_file() {
            return Ok(present);
        }
        let repository = self.api.repo(self.repository.clone());
        let metadata = self.api.metadata(&repository.url(file));
        let metadata = metadata.map_err(|error| self.explain.failure(Some(file), &error))?;
        // Both become names in the cache.
        if metadata.commit_hash() != self.commit || !is_plain_name(metadata.etag()) {
            return Err(self.explain.nonsense(format!("`{file}` comes with a commit or tag that cannot be right")));
        }
        let size = metadata.size() as u64;
        let blob = self.cache.repo(self.repository.clone()).blob_path(metadata.etag());
        let mut pauses = RETRY_PAUSES_MS.into_iter();
        let path = loop {
            discard_unless_shorter(&blob.with_extension("part"), size);
            let reporter = Reporter { callback: self.progress, file, done: 0, total: size };
            match (repository.download_with_progress(file, reporter), pauses.next()) {
                (Ok(path), _) => break path,
                (Err(error), Some(pause)) if is_worth_a_retry(&error) => {
                    std::thread::sleep(Duration::from_millis(pause))
                }
                (Err(error), _) => return Err(self.explain.failure(Some(file), &error)),
            }
        };
        // hf-hub does not compare lengths: a server that ignores `Range` would leave a file of two halves and more.
        let arrived = std::fs::metadata(&path).map_err(WeightsError::io("examine", &path))?.len();
        if arrived != size {
            discard(&path);
            discard(&blob);
            return Err(self.explain.nonsense(format!("`{file}` has {size} bytes but {arrived} arrived")));
        }
        Ok(path)
    }
}

/// Removes what an earlier run left when there is nothing to continue, which hf-hub would stumble over.
fn discard_unless_shorter(part: &Path, size: u64) {
    if std::fs::metadata(part).is_ok_and(|metadata| metadata.len() >= size) {
        discard(part);
    }
}

/// Removes a file if it can be removed; if not, the next use of it reports why.
fn discard(path: &Path) {
    std::fs::remove_file(path).ok();
}

/// Translates hf-hub's reports of pieces into running totals.
struct Reporter<'a> {
    callback: &'a mut dyn FnMut(Progress<'_>),
    file: &'a str,
    done: u64,
    total: u64,
}

impl HubProgress for Reporter<'_> {
    fn init(&mut self, _size: usize, _filename: &str) {
        self.done = 0;
    }

    fn update(&mut self, size: usize) {
        self.done = self.done.saturating_add(size as u64);
        (self.callback)(Progress { file: self.file, done: self.done, total: self.total });
    }

    fn finish(&mut self) {}
}
