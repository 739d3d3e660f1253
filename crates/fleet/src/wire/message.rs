//! The payloads of frames that are not steps: plain fields one after the other, read with every length checked.

use cascadia_kernels::ActivationPrecision;
use cascadia_model::{CacheFormat, CachePages, KvFormat, KvFormats, KvPolicy, ModelLimits, PageClass};

use crate::wire::codec::RowFormat;
use crate::wire::frame::{Kind, Outgoing};
use crate::wire::link::{Link, LinkError};
use crate::{Digest, Sandbox, SignedManifest};

/// The longest text in a message.
pub(crate) const MOST_TEXT: usize = 512;
/// The most bytes of a message.
pub(crate) const MOST_MESSAGE: u32 = 2048;

/// What a worker says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of its program.
    pub program: String,
    /// The shard it holds.
    pub shard: Option<Digest>,
    /// What keeps it from doing anything else on its machine.
    pub sandbox: Sandbox,
}

/// The most layers of a model whose formats are listed one by one.
const MOST_LAYERS: u32 = 4096;

/// What a stage is loaded for: limits that the coordinator sets for all stages alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLimits {
    /// Limits of the model.
    pub model: ModelLimits,
    /// How rows come and go.
    pub wire: RowFormat,
}

/// A file that a worker should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name, which is its content's digest.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// What it is offered under.
    pub signed: SignedManifest,
}

/// Collects fields.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

/// Hands out fields.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Writer {
    pub(crate) fn number(mut self, number: u32) -> Writer {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// At most [`MOST_TEXT`] bytes of a text.
    pub(crate) fn text(self, text: &str) -> Writer {
        let end = (0..=text.len().min(MOST_TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.number(end as u32).bytes(&text.as_bytes()[..end])
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], LinkError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or_else(broken)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u32, LinkError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], LinkError> {
        self.bytes(LENGTH)?.try_into().map_err(|_| broken())
    }

    pub(crate) fn text(&mut self) -> Result<String, LinkError> {
        let length = self.number()? as usize;
        if length > MOST_TEXT {
            return Err(broken());
        }
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| broken())?;
        // What a peer says is shown to people, so it stays one plain line.
        Ok(text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect())
    }

    pub(crate) fn end(&self) -> Result<(), LinkError> {
        if self.0.is_empty() { Ok(()) } else { Err(broken()) }
    }
}

pub(crate) fn broken() -> LinkError {
    LinkError::Broken("it sent a message that makes no sense".to_owned())
}

impl Hello {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let shard = self.shard.map_or([0; 32], |digest| digest.0);
        Writer::default()
            .text(&self.program)
            .number(self.shard.is_some().into())
            .bytes(&shard)
            .number(self.sandbox as u32)
            .0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Hello, LinkError> {
        let mut reader = Reader(bytes);
        let (program, has_shard, shard) = (reader.text()?, reader.number()?, reader.array::<32>()?);
        let sandbox = Sandbox::numbered(reader.number()?).ok_or_else(broken)?;
        reader.end()?;
        let shard = match (has_shard, shard) {
            (0, shard) if shard == [0; 32] => None,
            (1, shard) => Some(Digest(shard)),
            _ => return Err(broken()),
        };
        Ok(Hello { program, shard, sandbox })
    }
}

impl Offer {
    /// Tells the coordinator why the file is not taken; gives the error that this is.
    pub fn refuse(link: &mut dyn Link, problem: String) -> LinkError {
        refuse(link, problem)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.signed.write(Writer::default().bytes(&self.digest.0).bytes(&self.bytes.to_le_bytes())).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Offer, LinkError> {
        let mut reader = Reader(bytes);
        let (digest, bytes) = (Digest(reader.array()?), u64::from_le_bytes(reader.array()?));
        let signed = SignedManifest::read(&mut reader)?;
        reader.end()?;
        Ok(Offer { digest, bytes, signed })
    }
}

impl StageLimits {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let ModelLimits { context, rows_per_step, cache, kv, activations } = &self.model;
        let limits = Writer::default().number(*context).number(*rows_per_step);
        let limits = PageClass::ALL.into_iter().fold(limits, |limits, class| limits.number(cache.of(class)));
        let (kind, formats): (u32, &[KvFormat]) = match &kv.formats {
            KvFormats::Auto => (AUTO, &[]),
            KvFormats::Exact => (EXACT, &[]),
            KvFormats::Uniform(format) => (UNIFORM, std::slice::from_ref(format)),
            KvFormats::PerLayer(formats) => (PER_LAYER, formats),
        };
        let limits = limits.number(self.wire as u32).number(*activations as u32).number(kv.tail).number(kv.from);
        let limits = limits.number(kind).number(formats.len() as u32);
        let format = |limits: Writer, format: &KvFormat| limits.bytes(&[format.keys as u8, format.values as u8]);
        formats.iter().fold(limits, format).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<StageLimits, LinkError> {
        let mut reader = Reader(bytes);
        let (context, rows_per_step) = (reader.number()?, reader.number()?);
        let pages = [reader.number()?, reader.number()?, reader.number()?];
        let cache = CachePages::new(|class| pages[class as usize]);
        let wire = reader.number()?;
        let wire = RowFormat::numbered(wire).ok_or_else(|| LinkError::Broken(unknown("rows are to be sent", wire)))?;
        let activations = activation_precision(reader.number()?)?;
        let (tail, from) = (reader.number()?, reader.number()?);
        let (kind, count) = (reader.number()?, reader.number()?.min(MOST_LAYERS));
        let formats = (0..count).map(|_| kv_format(reader.array()?)).collect::<Result<Vec<_>, LinkError>>()?;
        reader.end()?;
        let formats = match (kind, formats.as_slice()) {
            (AUTO, []) => KvFormats::Auto,
            (EXACT, []) => KvFormats::Exact,
            (UNIFORM, [format]) => KvFormats::Uniform(*format),
            (PER_LAYER, _) => KvFormats::PerLayer(formats),
            _ => return Err(LinkError::Broken(unknown("keys and values are to be cached", kind))),
        };
        let kv = KvPolicy { formats, tail, from };
        Ok(StageLimits { model: ModelLimits { context, rows_per_step, cache, kv, activations }, wire })
    }
}

/// How the formats of a cache are told.
const AUTO: u32 = 0;
const EXACT: u32 = 1;
const UNIFORM: u32 = 2;
const PER_LAYER: u32 = 3;

/// Tells the other end why it is of no use; gives the error that this is.
pub(crate) fn refuse(link: &mut dyn Link, problem: String) -> LinkError {
    let message = Writer::default().text(&problem).0;
    match Outgoing::message(Kind::Refused, &message).send(link, &mut Vec::new()) {
        Ok(_) => LinkError::Broken(problem),
        Err(error) => error,
    }
}

fn activation_precision(number: u32) -> Result<ActivationPrecision, LinkError> {
    let known = ActivationPrecision::ALL.into_iter().find(|precision| *precision as u32 == number);
    known.ok_or_else(|| LinkError::Broken(unknown("activations are to be multiplied", number)))
}

fn kv_format(numbers: [u8; 2]) -> Result<KvFormat, LinkError> {
    let format = |number: u8| {
        let known = CacheFormat::ALL.iter().map(|(_, format)| *format).find(|format| *format as u8 == number);
        known.ok_or_else(|| LinkError::Broken(unknown("keys and values are to be cached", u32::from(number))))
    };
    Ok(KvFormat { keys: format(numbers[0])?, values: format(numbers[1])? })
}

fn unknown(what: &str, format: u32) -> String {
    format!("{what} in format {format}, which this program does not know; install the same on both")
}

/// The reason in a frame that refuses.
pub(crate) fn reason(bytes: &[u8]) -> Result<String, LinkError> {
    let mut reader = Reader(bytes);
    let text = reader.text()?;
    reader.end()?;
    Ok(text)
}

/// What a heartbeat says of how far a worker is: how many layers it has computed, where that is known.
pub(crate) fn layers_computed(bytes: &[u8]) -> Result<Option<u64>, LinkError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader(bytes);
    let layers = u64::from_le_bytes(reader.array()?);
    reader.end()?;
    Ok(Some(layers))
}

/// The time in a frame of rows.
pub(crate) fn microseconds(bytes: &[u8]) -> Result<u32, LinkError> {
    let mut reader = Reader(bytes);
    let time = reader.number()?;
    reader.end()?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_is_written_the_same_way() {
        let hello = |shard| Hello { program: "1.0".to_owned(), shard, sandbox: Sandbox::Full }.bytes();
        let (without, with) = (hello(None), hello(Some(Digest([7; 32]))));
        for bytes in [&without, &with] {
            assert_eq!(&Hello::parse(bytes).expect("it was written by this program").bytes(), bytes);
        }
        // A flag that is neither yes nor no, and a shard that it denies.
        let flag = 4 + "1.0".len();
        let changed = |bytes: &[u8], at: usize, byte: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            Hello::parse(&bytes)
        };
        assert!(changed(&with, flag, 2).is_err() && changed(&with, flag, 0).is_err());
        assert!(changed(&without, flag + 4, 1).is_err());
    }
}
