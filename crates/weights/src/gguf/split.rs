//! A model that was split into several GGUF files, put together again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read::{Header, read};
use crate::file_bytes::FileBytes;
use crate::{MetadataValue, WeightsError};

/// Most parts of one model; the largest known models have about thirty.
const MAX_PARTS: u32 = 1024;

/// The number of a part, from 0; how many there are; how many tensors they hold together.
const NUMBER_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// The name of one part: `stem-00002-of-00005.gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartName<'a> {
    stem: &'a str,
    /// From 1, as the name has it.
    pub number: u32,
    /// How many parts there are.
    pub count: u32,
}

impl<'a> PartName<'a> {
    /// Takes a file name or a path apart; `None` when it is not the name of a part.
    pub fn parse(name: &'a str) -> Option<PartName<'a>> {
        let digits = |text: &str| {
            let plain = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            if plain { text.parse::<u32>().ok() } else { None }
        };
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (digits(number)?, digits(count)?);
        ((1..=count).contains(&number) && count <= MAX_PARTS).then_some(PartName { stem, number, count })
    }

    /// The names of all parts of the same model, in order.
    pub fn all(self) -> impl Iterator<Item = String> + use<'a> {
        (1..=self.count).map(move |number| format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count))
    }
}

/// The parts of a model as one: the metadata of the first, the tensors and the files of all.
pub(crate) struct Whole {
    pub(crate) header: Header,
    pub(crate) files: Vec<Arc<FileBytes>>,
}

/// A file and what its header says.
type Part = (Arc<FileBytes>, Header);

/// Completes `file`, whose header has been read, with the other parts of its model if it is only one of several.
pub(crate) fn complete(file: Arc<FileBytes>, header: Header) -> Result<Whole, WeightsError> {
    let count = header.metadata.get(COUNT_KEY).and_then(MetadataValue::as_integer).unwrap_or(1);
    if count <= 1 {
        return Ok(Whole { header, files: vec![file] });
    }
    let path = file.path().to_owned();
    let problem = |problem: String| WeightsError::unsupported(&path, format!("metadata key `{COUNT_KEY}`"), problem);
    if !file.is_mapped() {
        return Err(problem(format!("the file is one of {count} parts; a model in memory has to be in one piece")));
    }
    let name = path.file_name().and_then(|name| name.to_str()).and_then(PartName::parse);
    let Some(name) = name.filter(|name| i128::from(name.count) == count) else {
        let wanted = format!("-00001-of-{count:05}.gguf");
        return Err(problem(format!(
            "the file is one of {count} parts, which are found by their names: let them end in `{wanted}` and so on"
        )));
    };
    let mut opened = Some((file, header));
    let mut parts = Vec::new();
    for (index, part) in (1..).zip(name.all()) {
        let part = match opened.take_if(|_| index == name.number) {
            Some(part) => part,
            None => open_part(&path.with_file_name(part))?,
        };
        check_part(&part, index - 1, name.count)?;
        parts.push(part);
    }
    join(parts)
}

fn open_part(path: &Path) -> Result<Part, WeightsError> {
    if !path.exists() {
        return Err(WeightsError::NotAModel {
            path: path.to_owned(),
            problem: "is missing: it is one part of a model that was split".to_owned(),
            advice: "put all parts of the model into one folder",
        });
    }
    let file = Arc::new(FileBytes::open(path)?);
    let header = read(&file)?;
    Ok((file, header))
}

/// A part has to be the one that its name says.
fn check_part(part: &Part, index: u32, count: u32) -> Result<(), WeightsError> {
    for (key, expected) in [(NUMBER_KEY, index), (COUNT_KEY, count)] {
        let found = part.1.metadata.require::<u32>(key)?;
        if found != expected {
            return Err(malformed(part, key, format!("is {found}, but the name of the file says {expected}")));
        }
    }
    Ok(())
}

fn join(parts: Vec<Part>) -> Result<Whole, WeightsError> {
    let tensors: usize = parts.iter().map(|(_, header)| header.tensors.len()).sum();
    for part in &parts {
        let announced = part.1.metadata.require::<usize>(TENSORS_KEY)?;
        if announced != tensors {
            let problem = format!("announces {announced} tensors in all parts together, which hold {tensors}");
            return Err(malformed(part, TENSORS_KEY, problem));
        }
    }
    let (files, headers): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let mut headers = headers.into_iter();
    let mut header = headers.next().expect("there is more than one part");
    header.tensors.extend(headers.flat_map(|part| part.tensors));
    // Who writes the whole as one file must not call it a part.
    header.metadata = header.metadata.without(&[NUMBER_KEY, COUNT_KEY, TENSORS_KEY]);
    Ok(Whole { header, files })
}

fn malformed((file, _): &Part, key: &str, problem: String) -> WeightsError {
    WeightsError::malformed(file.path(), format!("metadata key `{key}`"), problem)
}

/// The first of `paths` when all are parts of one model.
pub(crate) fn first_part<'a>(paths: &[&'a PathBuf]) -> Option<&'a PathBuf> {
    let first = *paths.iter().min()?;
    let name = PartName::parse(first.file_name()?.to_str()?)?;
    let expected: Vec<PathBuf> = name.all().map(|part| first.with_file_name(part)).collect();
    paths.iter().all(|path| expected.contains(path)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::PartName;

    #[test]
    fn names_of_parts() {
        let name = PartName::parse("some-model-00002-of-00003.gguf").unwrap();
        assert_eq!(name, PartName { stem: "some-model", number: 2, count: 3 });
        let all: Vec<String> = name.all().collect();
        assert_eq!(all[0], "some-model-00001-of-00003.gguf");
        assert_eq!((all.len(), all[1].as_str()), (3, "some-model-00002-of-00003.gguf"));
        for other in [
            "model.gguf",
            "model-00000-of-00003.gguf",
            "model-00004-of-00003.gguf",
            "model-1-of-3.gguf",
            "model-+0001-of-00003.gguf",
            "model-00001-of-99999.gguf",
            "model-00001-of-00003.safetensors",
            "-of-.gguf",
        ] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}
