//! Building safetensors bytes by hand.

use cascadia_weights::ModelFiles;

/// A file under construction: any header text, any announced length, any amount of data.
#[derive(Clone)]
pub(crate) struct RawSafetensors {
    pub(crate) header_len: Option<u64>,
    pub(crate) header: Vec<u8>,
    pub(crate) data_len: usize,
}

impl RawSafetensors {
    pub(crate) fn new(header: &str, data_len: usize) -> RawSafetensors {
        RawSafetensors { header_len: None, header: header.into(), data_len }
    }

    /// Two float tensors and two that cannot be used.
    pub(crate) fn seed() -> RawSafetensors {
        RawSafetensors::new(
            concat!(
                r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"#,
                r#""a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"#,
                r#""ids":{"dtype":"I64","shape":[1],"data_offsets":[22,30]},"#,
                r#""mask":{"dtype":"BOOL","shape":[2],"data_offsets":[30,32]}}"#
            ),
            32,
        )
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = self.header_len.unwrap_or(self.header.len() as u64);
        let mut bytes = [&length.to_le_bytes()[..], &self.header].concat();
        bytes.extend((0..self.data_len).map(|index| index as u8));
        bytes
    }

    pub(crate) fn open(&self) -> Result<ModelFiles, String> {
        ModelFiles::from_vec("test.safetensors", self.bytes()).map_err(|error| error.to_string())
    }
}
