//! Getting one file into the cache: continued where it stopped, and whole when it is there.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use cascadia_weights::hf_folder::is_plain_name;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG};
use ureq::http::{HeaderMap, Response, StatusCode};

use crate::cache::Cache;
use crate::client::{Client, RequestKind};
use crate::digest::{PIECE, is_sha256};
use crate::explain::{Explain, Failure};
use crate::partial::Partial;
use crate::{HubError, Progress};

/// Pauses before a broken transfer is continued; they start again whenever something has arrived.
const RETRY_PAUSES_MS: [u64; 3] = [200, 1000, 3000];

/// What is the same for all files of one model.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client<'a>,
    pub(crate) cache: &'a Cache,
    pub(crate) commit: &'a str,
    /// What the file must have, if that is known from elsewhere.
    pub(crate) sha256: Option<&'a str>,
    pub(crate) explain: Explain<'a>,
    pub(crate) progress: &'a mut dyn FnMut(Progress<'_>),
}

/// What the hub says about a file.
pub(crate) struct Properties {
    /// Its name in the cache; for large files the SHA-256 of their content.
    tag: String,
    pub(crate) size: u64,
}

impl Properties {
    /// What the content has, where its tag is that.
    fn sha256(&self) -> Option<&str> {
        Some(self.tag.as_str()).filter(|tag| is_sha256(tag))
    }
}

impl Download<'_> {
    /// The path of `file` in the cache, downloading it when it is not there.
    pub(crate) fn file(&mut self, file: &str) -> Result<PathBuf, HubError> {
        let present = self.cache.snapshot(self.commit).join(file);
        if present.is_file() {
            return Ok(present);
        }
        self.get(file).map_err(|failure| self.explain.failure(Some(file), &failure))
    }

    fn get(&mut self, file: &str) -> Result<PathBuf, Failure> {
        let address = self.address(file);
        let properties = with_retries(|| self.properties(&address).map_err(|failure| (failure, false)))?;
        let expected = properties.sha256().or(self.sha256);
        if let (Some(there), Some(known)) = (expected, self.sha256)
            && !there.eq_ignore_ascii_case(known)
        {
            return Err(Failure::Invalid(format!("the file there has SHA-256 {there} instead of {known}")));
        }
        let blob = self.cache.blob(&properties.tag);
        // Another commit may have the same file.
        if blob.metadata().map(|metadata| metadata.len()).ok() != Some(properties.size) {
            self.transfer(file, &address, (&properties, expected))?;
        }
        self.cache.link(self.commit, file, &properties.tag).map_err(Failure::Disk)
    }

    /// Where a file is.
    pub(crate) fn address(&self, file: &str) -> String {
        self.client.address(&format!("{}/resolve/{}/{file}", self.explain.model.id(), self.commit))
    }

    /// What the hub says about what is there.
    pub(crate) fn properties(&self, address: &str) -> Result<Properties, Failure> {
        let answer = self.client.send(address, RequestKind::Properties)?;
        let header = |names: &[&str]| names.iter().find_map(|name| answer.headers().get(*name)?.to_str().ok());
        // Large files lie elsewhere; what they are is said under names of its own.
        let tag = header(&["x-linked-etag", ETAG.as_str()]).map(|tag| tag.trim_start_matches("W/").trim_matches('"'));
        let size = header(&["x-linked-size", CONTENT_LENGTH.as_str()]).and_then(|size| size.parse().ok());
        let commit = header(&["x-repo-commit"]);
        // Tag and commit become names in the cache.
        let (Some(tag), Some(size)) = (tag.filter(|tag| is_plain_name(tag)), size) else {
            return Err(Failure::Invalid("the file comes without a usable tag or size".to_owned()));
        };
        if commit.is_some_and(|commit| commit != self.commit) {
            return Err(Failure::Invalid("the file comes from another commit than was asked for".to_owned()));
        }
        Ok(Properties { tag: tag.to_owned(), size })
    }

    fn transfer(
        &mut self,
        file: &str,
        address: &str,
        (Properties { tag, size }, sha256): (&Properties, Option<&str>),
    ) -> Result<(), Failure> {
        let mut partial = Partial::open(&self.cache.partial(tag))?;
        if partial.length() > *size {
            partial.restart().map_err(Failure::Disk)?;
        }
        with_retries(|| {
            let before = partial.length();
            let received = self.receive(file, address, *size, &mut partial);
            received.map_err(|failure| (failure, partial.length() > before))
        })?;
        partial.finish(&self.cache.blob(tag), sha256)
    }

    /// Receives what is missing of a file of `size` bytes.
    fn receive(&mut self, file: &str, address: &str, size: u64, partial: &mut Partial) -> Result<(), Failure> {
        if partial.length() == size {
            return Ok(());
        }
        let answer = self.client.send(address, RequestKind::From(partial.length()))?;
        if !continues(&answer, partial.length()) {
            partial.restart().map_err(Failure::Disk)?;
        }
        let mut content = answer.into_body().into_reader();
        let mut piece = vec![0; PIECE];
        while partial.length() < size {
            let count = content.read(&mut piece).map_err(ureq::Error::from)?;
            if count == 0 {
                let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed early");
                return Err(Failure::Transport(cut.into()));
            }
            if partial.length() + count as u64 > size {
                partial.restart().map_err(Failure::Disk)?;
                return Err(Failure::Invalid(format!("more than the {size} bytes of the file arrive")));
            }
            partial.append(&piece[..count]).map_err(Failure::Disk)?;
            (self.progress)(Progress { file, done: partial.length(), total: size });
        }
        Ok(())
    }
}

/// Whether an answer starts at byte `start`; a server may send everything instead.
fn continues<T>(answer: &Response<T>, start: u64) -> bool {
    let first = |headers: &HeaderMap| {
        let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
        range.strip_prefix("bytes ")?.split_once('-')?.0.parse::<u64>().ok()
    };
    answer.status() == StatusCode::PARTIAL_CONTENT && first(answer.headers()) == Some(start)
}

/// Tries until it works, nothing can be expected of trying again, or nothing has arrived several times in a row. A
/// failed attempt says whether it got something.
fn with_retries<T>(mut attempt: impl FnMut() -> Result<T, (Failure, bool)>) -> Result<T, Failure> {
    let mut pauses = RETRY_PAUSES_MS.into_iter();
    loop {
        let (failure, got_something) = match attempt() {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        if got_something {
            pauses = RETRY_PAUSES_MS.into_iter();
        }
        match pauses.next().filter(|_| failure.is_worth_a_retry()) {
            Some(pause) => std::thread::sleep(Duration::from_millis(pause)),
            None => return Err(failure),
        }
    }
}
