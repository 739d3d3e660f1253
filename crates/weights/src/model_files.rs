//! One face over every way in which a model can lie on disk.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::file_bytes::FileBytes;
use crate::hf_folder;
use crate::safetensors::{self, Contents, SetAside};
use crate::{MemoryAdvice, Metadata, Tensor, TensorBytes, WeightsError, gguf, names, quantised};

/// Which convention for names and settings the files follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// One file with metadata and vocabulary inside.
    Gguf,
    /// Safetensors with JSON files beside them.
    HuggingFace,
}

/// What is done with the pages of mapped weights before they are used; by default they come when they are touched, and
/// leave when the system needs room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightPages {
    /// All of them are brought into memory.
    pub populate: bool,
    /// None of them leaves memory any more.
    pub lock: bool,
}

/// An opened model: settings and tensors of a GGUF file, a Hugging Face folder or one safetensors file.
#[derive(Debug)]
pub struct ModelFiles {
    path: PathBuf,
    kind: FileKind,
    metadata: Metadata,
    tensors: Vec<Tensor>,
    /// Indices of `tensors` sorted by name.
    by_name: Vec<u32>,
    set_aside: Vec<SetAside>,
    /// Tensors of other shards.
    elsewhere: Vec<Tensor>,
    /// Where JSON files are looked for; `None` when the model is a single thing.
    folder: Option<PathBuf>,
    files: Vec<Arc<FileBytes>>,
}

impl ModelFiles {
    /// Opens a `.gguf` file, a `.safetensors` file, or a folder that holds a Hugging Face model or one GGUF model.
    ///
    /// Any part of a split GGUF model (`name-00001-of-00003.gguf`) opens all of it.
    pub fn open(path: &Path) -> Result<ModelFiles, WeightsError> {
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => open_folder(path),
            Ok(_) => open_file(path, FileBytes::open(path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let advice = "check the path, or give `org/name` to download a model";
                Err(not_a_model(path, "does not exist", advice))
            }
            Err(error) => Err(WeightsError::io("open", path)(error)),
        }
    }

    /// Opens a GGUF file that is compiled into the program; `name` stands in for its path in messages.
    pub fn from_static(name: &str, gguf: &'static [u8]) -> Result<ModelFiles, WeightsError> {
        open_file(Path::new(name), FileBytes::in_memory(name, Cow::Borrowed(gguf)))
    }

    /// Opens the content of a GGUF or safetensors file that is already in memory.
    pub fn from_vec(name: &str, bytes: Vec<u8>) -> Result<ModelFiles, WeightsError> {
        open_file(Path::new(name), FileBytes::in_memory(name, Cow::Owned(bytes)))
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which convention the files follow.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The key-values of a GGUF file; empty for Hugging Face.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// A JSON file that lies beside the weights, such as `config.json`; `Ok(None)` when there is none.
    ///
    /// # Panics
    /// When `file` is not a plain file name.
    pub fn json(&self, file: &str) -> Result<Option<Value>, WeightsError> {
        self.folder.as_deref().map_or(Ok(None), |folder| hf_folder::read_json(folder, file))
    }

    /// A JSON file in a folder that lies beside the weights; `Ok(None)` when there is none.
    ///
    /// # Panics
    /// When either is not a plain file name.
    pub fn json_in(&self, folder: &str, file: &str) -> Result<Option<Value>, WeightsError> {
        assert!(hf_folder::is_plain_name(folder), "the caller asks for a folder beside the weights by its name");
        let folder = self.folder.as_deref().map(|outer| outer.join(folder));
        folder.map_or(Ok(None), |folder| hf_folder::read_json(&folder, file))
    }

    /// A text file that lies beside the weights, such as `tokenizer.json`; `Ok(None)` when there is none.
    ///
    /// # Panics
    /// When `file` is not a plain file name.
    pub fn text(&self, file: &str) -> Result<Option<String>, WeightsError> {
        self.folder.as_deref().map_or(Ok(None), |folder| hf_folder::read_text(folder, file))
    }

    /// All tensors that can be computed with, sorted by position in the file or files.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Names of tensors that cannot be computed with, and why: those of integers, and those without numbers.
    pub fn unusable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.set_aside.iter().map(|tensor| (tensor.name.as_str(), tensor.reason.as_str()))
    }

    /// What this file says of the tensors that other shards of the model hold; none where it is no shard.
    pub fn elsewhere(&self) -> &[Tensor] {
        &self.elsewhere
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let position = self.by_name.binary_search_by(|&index| self.tensors[index as usize].name().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[position] as usize])
    }

    /// The tensor called `name`, or an error that says why there is none and which names are close.
    pub fn require(&self, name: &str) -> Result<&Tensor, WeightsError> {
        self.tensor(name).ok_or_else(|| {
            if let Some(tensor) = self.set_aside.iter().find(|tensor| tensor.name == name) {
                return WeightsError::unsupported(&self.path, format!("tensor `{name}`"), tensor.reason.clone());
            }
            if self.elsewhere.iter().any(|tensor| tensor.name() == name) {
                let hint = " (another shard of this model holds it)".to_owned();
                return WeightsError::MissingTensor { path: self.path.clone(), name: name.to_owned(), hint };
            }
            let near = names::closest(name, self.tensors.iter().map(Tensor::name));
            let hint = if near.is_empty() { String::new() } else { format!(" (close names: {})", near.join(", ")) };
            WeightsError::MissingTensor { path: self.path.clone(), name: name.to_owned(), hint }
        })
    }

    /// The bytes of all tensors that are `wanted` and that files hold as they are; neighbours in a file are joined,
    /// padding included.
    pub fn joined(&self, wanted: impl Fn(&Tensor) -> bool) -> Vec<TensorBytes> {
        let mut parts: Vec<TensorBytes> = Vec::new();
        let stored = self.tensors.iter().filter(|tensor| wanted(tensor)).filter_map(Tensor::stored_bytes);
        for bytes in stored {
            match parts.last().and_then(|last| last.joined(bytes)) {
                Some(both) => *parts.last_mut().expect("there is a last one") = both,
                None => parts.push(bytes.clone()),
            }
        }
        parts
    }

    /// The place of `bytes` in these files; `None` when they are a copy, or of another file.
    pub fn place_of(&self, bytes: &[u8]) -> Option<TensorBytes> {
        self.files.iter().find_map(|file| {
            let start = bytes.as_ptr().addr().checked_sub(file.bytes().as_ptr().addr())?;
            TensorBytes::new(file, start..start.checked_add(bytes.len())?)
        })
    }

    /// The name of the architecture, as the files give it.
    pub fn architecture(&self) -> Option<String> {
        if let Ok(Some(name)) = self.metadata.value::<&str>("general.architecture") {
            return Some(name.to_owned());
        }
        let config = self.json("config.json").ok().flatten()?;
        config["model_type"].as_str().map(str::to_owned)
    }

    /// How many numbers all tensors hold together.
    pub fn parameters(&self) -> u64 {
        let count = |shape: &[u64]| shape.iter().fold(1u64, |product, &size| product.saturating_mul(size));
        self.tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(count(tensor.shape())))
    }

    /// How many bytes all tensors take.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors.iter().map(Tensor::byte_len).sum()
    }

    /// The number format that holds most of the bytes.
    pub fn main_format(&self) -> Option<&'static str> {
        let mut bytes: BTreeMap<&'static str, u64> = BTreeMap::new();
        for tensor in &self.tensors {
            *bytes.entry(tensor.dtype().name()).or_default() += tensor.byte_len();
        }
        bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name)
    }

    /// Fails once a mapped file was truncated or overwritten: what was computed from it since is worthless.
    ///
    /// Reading a truncated file never ends the process; its lost pages read as zeros. So call this after each step; it
    /// costs one question to the system per file.
    pub fn check_intact(&self) -> Result<(), WeightsError> {
        self.files.iter().try_for_each(|file| file.check_intact())
    }

    /// Brings pages into memory, and keeps them there, as `pages` say.
    pub fn prepare_pages(&self, pages: WeightPages) -> Result<(), WeightsError> {
        for file in &self.files {
            if pages.populate && !file.populate() {
                TensorBytes::whole(file).fetch();
            }
            if pages.lock {
                file.lock()?;
            }
        }
        Ok(())
    }

    /// Tells the system how the tensors are going to be read.
    pub fn advise(&self, advice: MemoryAdvice) -> Result<(), WeightsError> {
        self.files.iter().try_for_each(|file| file.advise(0..file.bytes().len(), advice))
    }
}

fn open_file(path: &Path, file: FileBytes) -> Result<ModelFiles, WeightsError> {
    let file = Arc::new(file);
    let files = if file.bytes().starts_with(gguf::MAGIC) {
        open_gguf(path, file)?
    } else if has_extension(path, "safetensors") || safetensors::looks_like_safetensors(file.bytes()) {
        open_safetensors(path, file)?
    } else {
        let problem = "is neither GGUF nor safetensors (unknown first bytes)";
        return Err(not_a_model(path, problem, "give a .gguf or .safetensors file, or a Hugging Face model folder"));
    };
    files.check_intact()?;
    Ok(files)
}

fn open_gguf(path: &Path, file: Arc<FileBytes>) -> Result<ModelFiles, WeightsError> {
    let header = gguf::read::read(&file)?;
    let elsewhere = gguf::shard::read(&file, &header.metadata)?;
    let gguf::split::Whole { header, files } = gguf::split::complete(file, header)?;
    let contents = Contents { tensors: header.tensors, set_aside: Vec::new(), files };
    let base = Base { path, kind: FileKind::Gguf, folder: None };
    let files = ModelFiles::assemble(base, header.metadata, contents)?;
    match elsewhere.iter().find(|tensor| files.tensor(tensor.name()).is_some()) {
        Some(tensor) => {
            let field = format!("tensor `{}`", tensor.name());
            Err(WeightsError::malformed(path, field, "it is here, and another shard is said to hold it"))
        }
        None => Ok(ModelFiles { elsewhere, ..files }),
    }
}

fn open_safetensors(path: &Path, file: Arc<FileBytes>) -> Result<ModelFiles, WeightsError> {
    let contents = safetensors::read(&file)?;
    if path.to_str().is_some_and(is_shard_name) {
        let advice = "give the folder that holds all shards and their index";
        return Err(not_a_model(path, "is one shard of a larger model", advice));
    }
    // What is in memory has no folder around it.
    let folder = path.parent().filter(|_| file.is_mapped());
    let contents = match folder {
        Some(folder) => quantised::put_together(folder, contents)?,
        None => contents,
    };
    let base = Base { path, kind: FileKind::HuggingFace, folder };
    ModelFiles::assemble(base, Metadata::empty(path), contents)
}

fn open_folder(path: &Path) -> Result<ModelFiles, WeightsError> {
    let Some(contents) = safetensors::read_folder(path)? else { return open_only_gguf(path) };
    if !path.join("config.json").exists() {
        let problem = "holds safetensors but no config.json";
        return Err(not_a_model(path, problem, "download config.json and the tokenizer files of the model too"));
    }
    let contents = quantised::put_together(path, contents)?;
    let base = Base { path, kind: FileKind::HuggingFace, folder: Some(path) };
    let files = ModelFiles::assemble(base, Metadata::empty(path), contents)?;
    files.check_intact()?;
    Ok(files)
}

/// Opens the one GGUF model of a folder that has no safetensors.
fn open_only_gguf(folder: &Path) -> Result<ModelFiles, WeightsError> {
    let entries = folder.read_dir().map_err(WeightsError::io("list", folder))?;
    let names: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let with_extension =
        |extension: &str| names.iter().filter(|path| has_extension(path, extension)).collect::<Vec<_>>();
    let ggufs = with_extension("gguf");
    if let Some(first) = gguf::split::first_part(&ggufs) {
        return open_file(first, FileBytes::open(first)?);
    }
    match ggufs.as_slice() {
        [only] => open_file(only, FileBytes::open(only)?),
        [] if !with_extension("bin").is_empty() => Err(not_a_model(
            folder,
            "holds only PyTorch weights (.bin), which may run code when loaded",
            "use the safetensors version of the model or convert it",
        )),
        [] => Err(not_a_model(
            folder,
            "holds no model (no model.safetensors, no model.safetensors.index.json, no .gguf)",
            "give the folder of a downloaded model or the path of a .gguf file",
        )),
        several => {
            let advice = "give the path of one of them";
            Err(not_a_model(folder, &format!("holds {} .gguf files", several.len()), advice))
        }
    }
}

/// What an opened model is, apart from what it holds.
struct Base<'a> {
    path: &'a Path,
    kind: FileKind,
    folder: Option<&'a Path>,
}

impl ModelFiles {
    fn assemble(base: Base<'_>, metadata: Metadata, contents: Contents) -> Result<ModelFiles, WeightsError> {
        let Base { path, kind, folder } = base;
        let by_name = names::sorted_index(&contents.tensors, Tensor::name)
            .map_err(|name| WeightsError::malformed(path, format!("tensor `{name}`"), "the name occurs twice"))?;
        let Contents { tensors, set_aside, files } = contents;
        let (path, folder) = (path.to_owned(), folder.map(Path::to_owned));
        Ok(ModelFiles { path, kind, metadata, tensors, by_name, set_aside, elsewhere: Vec::new(), folder, files })
    }
}

fn not_a_model(path: &Path, problem: &str, advice: &'static str) -> WeightsError {
    WeightsError::NotAModel { path: path.to_owned(), problem: problem.to_owned(), advice }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// Whether a name ends like `-00001-of-00003.safetensors`.
fn is_shard_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_suffix(".safetensors").and_then(|stem| stem.rsplit_once("-of-"));
    numbers.is_some_and(|(before, total)| {
        is_number(total) && before.rsplit_once('-').is_some_and(|(_, number)| is_number(number))
    })
}
