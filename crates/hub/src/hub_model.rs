//! How people name a model of the hub.

use std::fmt;

/// `org/name`, with an optional choice among its GGUF files: `org/name:Q4_K_M` or `org/name/file.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubModel {
    id: String,
    selection: Option<Selection>,
}

/// Which GGUF file of a repository is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The one whose name contains this, in any case.
    Quantization(String),
    /// This one.
    File(String),
}

impl HubModel {
    /// The model that `text` names; `None` when the text does not have the form of a name.
    pub fn parse(text: &str) -> Option<HubModel> {
        let (text, quantization) = match text.split_once(':') {
            Some((text, quantization)) => (text, Some(quantization)),
            None => (text, None),
        };
        let mut parts = text.split('/');
        let (organisation, name, file) = (parts.next()?, parts.next()?, parts.next());
        let selection = match (file, quantization) {
            (None, None) => None,
            (None, Some(quantization)) => Some(Selection::Quantization(quantization.to_owned())),
            (Some(file), None) if file.to_ascii_lowercase().ends_with(".gguf") => {
                Some(Selection::File(file.to_owned()))
            }
            _ => return None,
        };
        let words = [Some(organisation), Some(name), file, quantization];
        let valid = parts.next().is_none() && words.into_iter().flatten().all(is_word);
        valid.then(|| HubModel { id: format!("{organisation}/{name}"), selection })
    }

    /// `org/name` alone.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The GGUF file of the same repository in this quantisation.
    pub(crate) fn in_quantization(&self, quantization: &str) -> HubModel {
        HubModel { id: self.id.clone(), selection: Some(Selection::Quantization(quantization.to_owned())) }
    }

    pub(crate) fn selection(&self) -> Option<&Selection> {
        self.selection.as_ref()
    }
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.selection {
            None => f.write_str(&self.id),
            Some(Selection::Quantization(quantization)) => write!(f, "{}:{quantization}", self.id),
            Some(Selection::File(file)) => write!(f, "{}/{file}", self.id),
        }
    }
}

/// Parts of a name become parts of addresses and paths, so nothing else than these characters may be in them.
fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !text.is_empty() && text.len() <= 128 && text.bytes().all(allowed) && !text.contains("..") && text != "."
}

#[cfg(test)]
mod tests {
    use super::HubModel;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        for text in ["org/name", "Qwen/Qwen2.5-0.5B-Instruct", "org/name:Q4_K_M", "a_b/c-d/e.gguf"] {
            assert_eq!(HubModel::parse(text).map(|model| model.to_string()).as_deref(), Some(text));
        }
        assert_eq!(HubModel::parse("org/name:Q8_0").unwrap().id(), "org/name");
    }

    #[test]
    fn what_could_leave_the_cache_is_no_name() {
        let bad = [
            "",
            "name",
            "/name",
            "org/",
            "org/..",
            "../name",
            "./name",
            "org/na me",
            "org/name/file.bin",
            "a/b/c/d.gguf",
            "org\\name",
            "org/name:",
            "org/name:Q4/x",
            "org/a..b",
            "org/näme",
            "https://x/y",
            "org/name/x.gguf:Q4",
        ];
        bad.into_iter().for_each(|text| assert_eq!(HubModel::parse(text), None, "{text}"));
    }
}
