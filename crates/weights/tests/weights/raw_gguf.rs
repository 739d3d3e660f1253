//! Building GGUF bytes by hand, so that every lie can be told.

use cascadia_weights::ModelFiles;

/// A file under construction. Counts can be overridden; everything else is written as given.
#[derive(Clone)]
pub(crate) struct RawGguf {
    pub(crate) version: [u8; 4],
    pub(crate) tensor_count: Option<u64>,
    pub(crate) key_count: Option<u64>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) alignment: usize,
    pub(crate) data: Vec<u8>,
}

impl RawGguf {
    pub(crate) fn new() -> RawGguf {
        RawGguf {
            version: 3u32.to_le_bytes(),
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }

    /// A small file with strings, arrays and two tensors of 32 bytes.
    pub(crate) fn seed() -> RawGguf {
        let tokens: Vec<u8> = [&b"<s>"[..], b"\xff\xfe", b"hello"].into_iter().flat_map(string).collect();
        RawGguf::new()
            .key("general.architecture", 8, &string(b"llama"))
            .key("llama.block_count", 4, &7u32.to_le_bytes())
            .key("llama.epsilon", 6, &1e-5f32.to_le_bytes())
            .key("tokenizer.ggml.add_bos_token", 7, &[1])
            .key("tokenizer.ggml.tokens", 9, &[&array_head(8, 3)[..], &tokens].concat())
            .key("tokenizer.ggml.scores", 9, &[&array_head(6, 2)[..], &[0; 8]].concat())
            .tensor("token_embd.weight", &[4, 2], 0, 0)
            .tensor("output.weight", &[8], 0, 32)
            .data(64)
    }

    pub(crate) fn key(mut self, key: &str, kind: u32, value: &[u8]) -> RawGguf {
        self.keys.push([&string(key.as_bytes())[..], &kind.to_le_bytes(), value].concat());
        self
    }

    /// `dimensions` as the file has them, innermost first.
    pub(crate) fn tensor(mut self, name: &str, dimensions: &[u64], kind: u32, offset: u64) -> RawGguf {
        let mut bytes = string(name.as_bytes());
        bytes.extend((dimensions.len() as u32).to_le_bytes());
        dimensions.iter().for_each(|dimension| bytes.extend(dimension.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        self.tensors.push(bytes);
        self
    }

    pub(crate) fn data(mut self, length: usize) -> RawGguf {
        self.data = (0..length).map(|index| index as u8).collect();
        self
    }

    pub(crate) fn header(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version);
        bytes.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        bytes.extend(self.keys.concat());
        bytes.extend(self.tensors.concat());
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend(&self.data);
        bytes
    }

    pub(crate) fn open(&self) -> Result<ModelFiles, String> {
        ModelFiles::from_vec("test.gguf", self.bytes()).map_err(|error| error.to_string())
    }
}

pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

pub(crate) fn array_head(kind: u32, count: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat()
}
