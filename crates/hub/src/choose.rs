//! Which files of a repository make up a model.

use cascadia_weights::gguf::PartName;
use cascadia_weights::hf_folder::{INDEX_FILE, SINGLE_FILE, is_plain_name};

use crate::hub_model::Selection;

/// Files beside the weights that are fetched when they exist.
const SMALL_FILES: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    INDEX_FILE,
];

/// GGUF files that are taken unasked, best compromise first.
const PREFERRED: [&str; 9] = ["Q4_K_M", "Q4_K_S", "Q5_K_M", "Q6_K", "Q8_0", "Q4_0", "BF16", "F16", "F32"];

/// The files to fetch, the most telling ones last.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// One file with everything inside, or all parts of one that was split.
    Gguf(Vec<String>),
    /// A Hugging Face folder.
    Safetensors {
        /// Settings and vocabulary.
        small_files: Vec<String>,
        /// Whether `small_files` holds an index that names the weights.
        index: bool,
        /// The weights, when there is no index.
        weights: Vec<String>,
    },
}

/// Whether a folder with this file can be tokenized with.
pub(crate) fn is_vocabulary(file: &str) -> bool {
    matches!(file, "tokenizer.json" | "tokenizer.model")
}

/// Picks from the files of a repository; the error says what is wrong with them.
pub(crate) fn choose(files: &[String], selection: Option<&Selection>) -> Result<Choice, String> {
    let has = |name: &str| files.iter().any(|file| file == name);
    let ggufs: Vec<&String> = files.iter().filter(|file| is_gguf_model(file)).collect();
    match selection {
        Some(Selection::File(name)) if has(name) => return gguf(files, name),
        Some(Selection::File(name)) => return Err(format!("it has no file `{name}` ({})", listed(&ggufs))),
        Some(Selection::Quantization(wanted)) => {
            let found = ggufs.iter().find(|file| contains_word(file, wanted));
            let found = found.ok_or_else(|| format!("it has no GGUF file `{wanted}` ({})", listed(&ggufs)))?;
            return gguf(files, found);
        }
        None => {}
    }
    let index = has(INDEX_FILE);
    if has("config.json") && (index || has(SINGLE_FILE)) {
        let small_files = SMALL_FILES.into_iter().filter(|file| has(file)).map(str::to_owned).collect();
        let weights = if index { Vec::new() } else { vec![SINGLE_FILE.to_owned()] };
        return Ok(Choice::Safetensors { small_files, index, weights });
    }
    let preferred = PREFERRED.iter().find_map(|wanted| ggufs.iter().find(|file| contains_word(file, wanted)));
    match (preferred, ggufs.as_slice()) {
        (Some(file), _) | (None, [file]) => gguf(files, file),
        (None, []) => Err("it has neither safetensors with a config.json nor a GGUF file".to_owned()),
        (None, _) => Err(format!("it is unclear which of its GGUF files is meant ({})", listed(&ggufs))),
    }
}

/// Every model that the files of a repository make up, those in GGUF with the name of their first file.
pub(crate) fn all(files: &[String]) -> Vec<(Option<String>, Vec<String>)> {
    let (ggufs, others): (Vec<String>, Vec<String>) = files.iter().cloned().partition(|file| file.ends_with(".gguf"));
    let first = ggufs.iter().filter(|file| is_gguf_model(file));
    let whole = first.filter_map(|file| match gguf(files, file) {
        Ok(Choice::Gguf(parts)) => Some((Some(file.clone()), parts)),
        _ => None,
    });
    let mut models: Vec<_> = whole.collect();
    if let Ok(Choice::Safetensors { .. }) = choose(&others, None) {
        models.push((None, others));
    }
    models
}

/// The file called `name` with all others that it is a part with.
fn gguf(files: &[String], name: &str) -> Result<Choice, String> {
    let parts = PartName::parse(name).map_or_else(|| vec![name.to_owned()], |part| part.all().collect());
    match parts.iter().find(|part| !files.contains(part)) {
        Some(missing) => Err(format!("`{name}` is one of {} parts, of which it lacks `{missing}`", parts.len())),
        None => Ok(Choice::Gguf(parts)),
    }
}

/// A GGUF model by its first file, in the repository or one folder below: no later part of a split one, no projector
/// of an image model.
fn is_gguf_model(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let is_in_reach = file.matches('/').count() <= 1 && file.split('/').all(is_plain_name);
    let is_first = PartName::parse(file).is_none_or(|part| part.number == 1);
    name.ends_with(".gguf") && is_in_reach && is_first && !name.starts_with("mmproj")
}

/// Whether `wanted` occurs in `file` as a whole word, so that `F16` does not find `BF16`.
fn contains_word(file: &str, wanted: &str) -> bool {
    let (file, wanted) = (file.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    let is_edge = |byte: Option<u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_');
    file.match_indices(&wanted).any(|(start, found)| {
        let before = start.checked_sub(1).map(|position| file.as_bytes()[position]);
        is_edge(before) && is_edge(file.as_bytes().get(start + found.len()).copied())
    })
}

fn listed(files: &[&String]) -> String {
    match files {
        [] => "it has no GGUF file".to_owned(),
        _ => format!("there are {}", files.iter().map(|file| file.as_str()).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[&str], selection: Option<Selection>, expected: Result<&str, &str>) {
        let files: Vec<String> = files.iter().map(|file| file.to_string()).collect();
        let chosen = choose(&files, selection.as_ref()).map(|choice| match choice {
            Choice::Gguf(parts) => parts.join(" "),
            Choice::Safetensors { small_files, weights, .. } => [small_files, weights].concat().join(" "),
        });
        match (chosen, expected) {
            (Ok(chosen), Ok(expected)) => assert_eq!(chosen, expected),
            (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{problem}"),
            (chosen, expected) => panic!("{files:?}: {chosen:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn safetensors_come_before_gguf_and_strangers_stay() {
        let single =
            ["README.md", "config.json", "tokenizer.json", "model.safetensors", "x.Q4_0.gguf", "pytorch_model.bin"];
        check(&single, None, Ok("config.json tokenizer.json model.safetensors"));
        let sharded = ["config.json", INDEX_FILE, "model-00001-of-00002.safetensors", "../../evil.json"];
        check(&sharded, None, Ok("config.json model.safetensors.index.json"));
        check(&["config.json", "pytorch_model.bin"], None, Err("neither safetensors"));
    }

    #[test]
    fn a_gguf_is_picked_by_wish_or_by_rank() {
        let files = [
            "m-BF16.gguf",
            "m-F16.gguf",
            "m-Q8_0.gguf",
            "m-Q4_K_M.gguf",
            "m-Q2_K-00001-of-00002.gguf",
            "m-Q2_K-00002-of-00002.gguf",
            "m-Q3_K-00001-of-00002.gguf",
            "Q6_K/m-00001-of-00002.gguf",
            "Q6_K/m-00002-of-00002.gguf",
            "a/b/m-Q5_K.gguf",
            "../m-Q5_K.gguf",
            "mmproj-Q4_K_M.gguf",
        ];
        let quantization = |name: &str| Some(Selection::Quantization(name.to_owned()));
        check(&files, None, Ok("m-Q4_K_M.gguf"));
        check(&files, quantization("f16"), Ok("m-F16.gguf"));
        check(&files, quantization("q8_0"), Ok("m-Q8_0.gguf"));
        check(&files, quantization("Q2_K"), Ok("m-Q2_K-00001-of-00002.gguf m-Q2_K-00002-of-00002.gguf"));
        let second = Selection::File("m-Q2_K-00002-of-00002.gguf".to_owned());
        check(&files, Some(second), Ok("m-Q2_K-00001-of-00002.gguf m-Q2_K-00002-of-00002.gguf"));
        check(&files, quantization("Q3_K"), Err("one of 2 parts, of which it lacks `m-Q3_K-00002-of-00002.gguf`"));
        check(&files, quantization("q6_k"), Ok("Q6_K/m-00001-of-00002.gguf Q6_K/m-00002-of-00002.gguf"));
        check(&files, quantization("Q5_K"), Err("no GGUF file `Q5_K` (there are m-BF16.gguf, m-F16.gguf"));
        check(&files, Some(Selection::File("m-Q8_0.gguf".to_owned())), Ok("m-Q8_0.gguf"));
        check(&files, Some(Selection::File("other.gguf".to_owned())), Err("no file `other.gguf`"));
        check(&["a.gguf"], None, Ok("a.gguf"));
        check(&["a.gguf", "b.gguf"], None, Err("unclear which"));
    }
}
