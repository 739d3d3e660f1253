//! Fields of requests that say how tokens are chosen, each written once: what clients call it, which values it takes, what
//! it changes.
//!
//! A protocol lists the fields that its clients know and wraps its body in [`WithSampling`], which reads them beside the
//! fields of the body itself. `#[serde(flatten)]` would do the same, but keep every unknown field in memory meanwhile
//! and lose the path to a wrong value.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use cascadia_engine::Sampling;
use cascadia_text::{OutputFormat, StopStrings};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{Number as SchemaNumber, PartialSchema, ToSchema};

use crate::error::ApiError;
use crate::request::bounded::{Json, List, OneOrMany, Pairs};
use crate::request::output_format::named_format;
use crate::request::validate::{Range, shortened};

/// The most stop strings of a request.
pub(crate) const MAX_STOPS: usize = 16;
/// The most tokens of `stop_token_ids`.
const MAX_STOP_TOKENS: usize = 64;
/// The most entries of `logit_bias`.
const MAX_BIASES: usize = 1024;
const LOGIT_BIAS_RANGE: Range = Range::new("logit_bias", -100.0, 100.0);

pub(crate) const TEMPERATURE: SamplingField =
    number("temperature", 0.0, 2.0, |settings, value| settings.sampling.temperature = value as f32)
        .described("0 always takes the most likely token.");

/// The sampler excludes 0; the least number above it keeps the most likely token alone.
pub(crate) const TOP_P: SamplingField =
    number("top_p", 0.0, 1.0, |settings, value| settings.sampling.top_p = (value as f32).max(f32::MIN_POSITIVE))
        .described("Keep the most likely tokens up to this probability.");

/// Clients differ in which value keeps all tokens.
pub(crate) const TOP_K: SamplingField =
    whole("top_k", -1.0, 2_097_152.0, |settings, value| settings.sampling.top_k = value.max(0.0) as u32)
        .described("Keep this many of the most likely tokens; 0 and -1 keep all.");

pub(crate) const MIN_P: SamplingField =
    number("min_p", 0.0, 1.0, |settings, value| settings.sampling.min_p = value as f32)
        .described("Keep tokens at least this likely relative to the most likely one.");

pub(crate) const REPETITION_PENALTY: SamplingField =
    number("repetition_penalty", 0.1, 10.0, |settings, value| settings.sampling.repetition_penalty = value as f32)
        .described("Makes tokens of prompt and answer less likely; 1 is off.");

pub(crate) const PRESENCE_PENALTY: SamplingField =
    number("presence_penalty", -2.0, 2.0, |settings, value| settings.sampling.presence_penalty = value as f32)
        .described("Makes tokens of the answer less likely.");

pub(crate) const FREQUENCY_PENALTY: SamplingField =
    number("frequency_penalty", -2.0, 2.0, |settings, value| settings.sampling.frequency_penalty = value as f32)
        .described("Makes tokens of the answer less likely each time they occur.");

pub(crate) const LOGIT_BIAS: SamplingField =
    field("logit_bias", FieldKind::LogitBias).described("Added to the logits of single tokens, from -100 to 100.");

pub(crate) const SEED: SamplingField = field("seed", FieldKind::Seed).described("Same seed, same answer.");

pub(crate) const STOP: SamplingField = field("stop", FieldKind::Stop).described("Texts that end the answer, up to 16.");

pub(crate) const MIN_TOKENS: SamplingField =
    whole("min_tokens", 0.0, 1_048_576.0, |settings, value| settings.min_tokens = value as u32)
        .described("Tokens of an answer before one may end it.");

pub(crate) const IGNORE_EOS: SamplingField =
    field("ignore_eos", FieldKind::Flag(|settings| settings.ignore_end = true))
        .described("Continue after tokens that end an answer.");

pub(crate) const STOP_TOKENS: SamplingField =
    field("stop_token_ids", FieldKind::StopTokens).described("More tokens that end the answer, up to 64.");

/// Every field, under the names that most clients know.
pub(crate) const ALL: &[SamplingField] = &[
    TEMPERATURE,
    TOP_P,
    TOP_K,
    MIN_P,
    REPETITION_PENALTY,
    PRESENCE_PENALTY,
    FREQUENCY_PENALTY,
    LOGIT_BIAS,
    SEED,
    STOP,
    MIN_TOKENS,
    IGNORE_EOS,
    STOP_TOKENS,
    format(
        "structured_outputs",
        "A format of the answer: `json`, `json_object`, `regex`, `choice` or `grammar`, as vLLM has it.",
    ),
    format("guided_json", "A JSON schema of the answer."),
    format("guided_regex", "A regular expression of the answer."),
    format("guided_choice", "Texts of which the answer is one."),
    format("guided_grammar", "A grammar of the answer in Lark's notation."),
    format("regex", "A regular expression of the answer."),
    format("grammar", "A grammar of the answer in Lark's notation."),
    format("json_schema", "A JSON schema of the answer."),
    not_offered("use_beam_search", &["false"]),
    not_offered("prompt_logprobs", &["0"]),
    not_offered("truncate_prompt_tokens", &["-1"]),
    not_offered("include_stop_str_in_output", &["false"]),
    not_offered("return_tokens_as_token_ids", &["false"]),
    not_offered("return_token_ids", &["false"]),
    not_offered("logits_processors", &["[]"]),
    not_offered("bad_words", &["[]"]),
    not_offered("allowed_token_ids", &["[]"]),
    not_offered("ebnf", &[]),
    not_offered("structural_tag", &[]),
    not_offered("typical_p", &["1", "1.0"]),
    not_offered("top_a", &["0", "0.0"]),
    not_offered("tfs_z", &["1", "1.0"]),
    not_offered("mirostat", &["0"]),
    not_offered("xtc_probability", &["0", "0.0"]),
    not_offered("dry_multiplier", &["0", "0.0"]),
    not_offered("dynatemp_range", &["0", "0.0"]),
    not_offered("n_probs", &["0"]),
    not_offered("modalities", &["[\"text\"]", "[]"]),
    not_offered("audio", &[]),
    not_offered("web_search_options", &[]),
];

/// A field of a request that says how tokens are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplingField {
    name: &'static str,
    description: &'static str,
    kind: FieldKind,
}

/// What the values of a field are.
#[derive(Clone, Copy, Debug)]
enum FieldKind {
    Number(Numeric),
    /// A number without a fraction.
    Whole(Numeric),
    Flag(fn(&mut SamplingSettings)),
    Seed,
    Stop,
    StopTokens,
    LogitBias,
    /// A format of the answer.
    Format,
    /// Something that this server does not do; these values, as JSON, ask for nothing.
    NotOffered(&'static [&'static str]),
}

/// A setting of the sampler that is a number.
#[derive(Clone, Copy, Debug)]
struct Numeric {
    range: Range,
    set: fn(&mut SamplingSettings, f64),
}

const fn number(name: &'static str, least: f64, most: f64, set: fn(&mut SamplingSettings, f64)) -> SamplingField {
    field(name, FieldKind::Number(Numeric { range: Range::new(name, least, most), set }))
}

const fn whole(name: &'static str, least: f64, most: f64, set: fn(&mut SamplingSettings, f64)) -> SamplingField {
    field(name, FieldKind::Whole(Numeric { range: Range::new(name, least, most), set }))
}

const fn format(name: &'static str, description: &'static str) -> SamplingField {
    field(name, FieldKind::Format).described(description)
}

/// A field of other servers that would change the answer, so that it is refused and not ignored.
pub(crate) const fn not_offered(name: &'static str, harmless: &'static [&'static str]) -> SamplingField {
    field(name, FieldKind::NotOffered(harmless)).described("Not offered.")
}

const fn field(name: &'static str, kind: FieldKind) -> SamplingField {
    SamplingField { name, description: "", kind }
}

impl SamplingField {
    /// The same field under the name that the clients of another protocol know.
    pub(crate) const fn named(self, name: &'static str) -> SamplingField {
        SamplingField { name, ..self }
    }

    /// The same field with another description in `/openapi.json`.
    pub(crate) const fn described(self, description: &'static str) -> SamplingField {
        SamplingField { description, ..self }
    }

    /// Reads the value that comes next; `null` is as good as none.
    fn read<'de, A: MapAccess<'de>>(&self, entries: &mut A) -> Result<Option<Given>, A::Error> {
        let number =
            |Numeric { range, set }, value| Given::Number(Numeric { range: range.named(self.name), set }, value);
        Ok(match self.kind {
            FieldKind::Number(numeric) => entries.next_value::<Option<f64>>()?.map(|value| number(numeric, value)),
            FieldKind::Whole(numeric) => {
                entries.next_value::<Option<i64>>()?.map(|value| number(numeric, value as f64))
            }
            FieldKind::Flag(set) => entries.next_value::<Option<bool>>()?.filter(|on| *on).map(|_| Given::Flag(set)),
            FieldKind::Seed => entries.next_value::<Option<i64>>()?.map(Given::Seed),
            FieldKind::StopTokens => {
                entries.next_value::<Option<List<u32, MAX_STOP_TOKENS>>>()?.map(|tokens| Given::StopTokens(tokens.0))
            }
            FieldKind::Format => entries.next_value::<Option<Json>>()?.map(|format| Given::Format(format.0)),
            FieldKind::NotOffered(harmless) => {
                let value = entries.next_value::<Option<Json>>()?.map(|value| value.0.to_string());
                value.filter(|value| !harmless.contains(&value.as_str())).map(|_| Given::NotOffered)
            }
            FieldKind::Stop => {
                entries.next_value::<Option<OneOrMany<String, MAX_STOPS>>>()?.map(|texts| Given::Stop(texts.into_vec()))
            }
            FieldKind::LogitBias => {
                entries.next_value::<Option<Pairs<f64, MAX_BIASES>>>()?.map(|pairs| Given::LogitBias(pairs.0))
            }
        })
    }

    fn schema(&self) -> RefOr<Schema> {
        let object = ObjectBuilder::new().description(Some(self.description));
        let optional = |kind: Type| SchemaType::Array(vec![kind, Type::Null]);
        let within = |object: ObjectBuilder, range: Range| {
            object.minimum(Some(schema_number(range.least))).maximum(Some(schema_number(range.most)))
        };
        let double = SchemaFormat::KnownFormat(KnownFormat::Double);
        let int64 = SchemaFormat::KnownFormat(KnownFormat::Int64);
        let object = match self.kind {
            FieldKind::Number(numeric) => {
                within(object.schema_type(optional(Type::Number)).format(Some(double)), numeric.range)
            }
            FieldKind::Whole(numeric) => {
                within(object.schema_type(optional(Type::Integer)).format(Some(int64)), numeric.range)
            }
            FieldKind::Flag(_) => object.schema_type(optional(Type::Boolean)),
            FieldKind::Seed => object.schema_type(optional(Type::Integer)).format(Some(int64)),
            FieldKind::Stop | FieldKind::StopTokens | FieldKind::Format | FieldKind::NotOffered(_) => {
                object.schema_type(optional(Type::Object))
            }
            FieldKind::LogitBias => {
                let value = ObjectBuilder::new().schema_type(Type::Number).format(Some(double));
                let name = Schema::Object(ObjectBuilder::new().schema_type(Type::String).build());
                object
                    .schema_type(optional(Type::Object))
                    .additional_properties(Some(AdditionalProperties::from(RefOr::T(Schema::Object(value.build())))))
                    .property_names(Some(name))
            }
        };
        RefOr::T(Schema::Object(object.build()))
    }
}

/// Whole numbers are written without a fraction.
fn schema_number(value: f64) -> SchemaNumber {
    if value.fract() == 0.0 { SchemaNumber::Int(value as isize) } else { SchemaNumber::Float(value) }
}

/// A body whose clients may also send sampling fields.
pub(crate) trait HasSampling {
    /// Those that its protocol knows.
    const FIELDS: &'static [SamplingField];
}

/// A body, and the sampling fields that stand beside its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithSampling<T> {
    pub(crate) body: T,
    pub(crate) sampling: SamplingValues,
}

/// Sampling fields that a request has, not checked yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingValues(Vec<(&'static str, Option<Given>)>);

/// The value of a field in a request.
#[derive(Clone, Debug)]
enum Given {
    Number(Numeric, f64),
    Flag(fn(&mut SamplingSettings)),
    Seed(i64),
    Stop(Vec<String>),
    StopTokens(Vec<u32>),
    LogitBias(Vec<(String, f64)>),
    Format(Value),
    NotOffered,
}

/// Sampling fields whose every value is in range.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingSettings {
    /// Without a seed.
    pub(crate) sampling: Sampling,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Vec<String>,
    /// Tokens that end an answer besides those of the model.
    pub(crate) stop_tokens: Vec<u32>,
    /// The model's own tokens do not end it.
    pub(crate) ignore_end: bool,
    /// Tokens before one may end it.
    pub(crate) min_tokens: u32,
    /// The format that the answer must have, with the field that says so.
    pub(crate) format: Option<(&'static str, OutputFormat)>,
}

impl SamplingValues {
    /// A number as the client sent it.
    pub(crate) fn number(&self, field: &SamplingField) -> Option<f64> {
        self.0.iter().find_map(|(name, given)| match given {
            Some(Given::Number(_, value)) if *name == field.name => Some(*value),
            _ => None,
        })
    }

    /// The same with texts that end the answer, for a protocol that has a field of its own for them.
    pub(crate) fn with_stop(mut self, texts: Vec<String>) -> SamplingValues {
        self.0.push((STOP.name, Some(Given::Stop(texts))));
        self
    }

    /// Checks every value; `defaults` hold for fields that the request does not have.
    pub(crate) fn check(self, defaults: Sampling) -> Result<SamplingSettings, ApiError> {
        let mut settings = SamplingSettings { sampling: defaults, ..SamplingSettings::default() };
        for (name, given) in self.0 {
            let Some(given) = given else { continue };
            match given {
                Given::Flag(set) => set(&mut settings),
                Given::StopTokens(tokens) => settings.stop_tokens = tokens,
                Given::Format(value) => {
                    let Some(format) = named_format(name, &value)? else { continue };
                    if let Some((other, _)) = settings.format.replace((name, format)) {
                        let message = format!("{name} and {other} both give a format; send one of them");
                        return Err(ApiError::invalid(name, message));
                    }
                }
                Given::NotOffered => {
                    return Err(ApiError::unsupported(name, format!("{name} is not offered here; leave it out")));
                }
                Given::Number(Numeric { range, set }, value) => set(&mut settings, range.check(value)?),
                // The sign is only a way to write the same 64 bits.
                Given::Seed(seed) => settings.seed = Some(seed as u64),
                Given::Stop(texts) => settings.stop = stop_texts(texts)?,
                Given::LogitBias(entries) => settings.sampling.logit_bias = biases(&entries)?,
            }
        }
        Ok(settings)
    }
}

fn stop_texts(texts: Vec<String>) -> Result<Vec<String>, ApiError> {
    if texts.len() > MAX_STOPS {
        let message = format!("stop has {} entries; send at most {MAX_STOPS}", texts.len());
        return Err(ApiError::invalid("stop", message));
    }
    StopStrings::new(&texts).map_err(|error| ApiError::invalid("stop", error.to_string()))?;
    Ok(texts)
}

fn biases(entries: &[(String, f64)]) -> Result<Vec<(u32, f32)>, ApiError> {
    let check = |(token, bias): &(String, f64)| match token.parse::<u32>() {
        Ok(token) => Ok((token, LOGIT_BIAS_RANGE.check(*bias)? as f32)),
        Err(_) => Err(ApiError::invalid("logit_bias", format!("`{}` is not a token number", shortened(token)))),
    };
    entries.iter().map(check).collect()
}

impl<'de, T: Deserialize<'de> + HasSampling + ToSchema> Deserialize<'de> for WithSampling<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BodyVisitor(PhantomData))
    }
}

struct BodyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + HasSampling + ToSchema> Visitor<'de> for BodyVisitor<T> {
    type Value = WithSampling<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "struct {}", T::name())
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        let mut sampling = SamplingValues::default();
        let rest = OtherEntries { entries, fields: T::FIELDS, sampling: &mut sampling };
        let body = T::deserialize(MapAccessDeserializer::new(rest))?;
        Ok(WithSampling { body, sampling })
    }
}

/// The entries of an object without its sampling fields, which are put aside as they come.
struct OtherEntries<'a, A> {
    entries: A,
    fields: &'static [SamplingField],
    sampling: &'a mut SamplingValues,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for OtherEntries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.entries.next_key::<String>()? {
            let Some(field) = self.fields.iter().find(|field| field.name == key) else {
                return seed.deserialize(key.into_deserializer()).map(Some);
            };
            if self.sampling.0.iter().any(|(name, _)| *name == field.name) {
                return Err(A::Error::duplicate_field(field.name));
            }
            let given = field.read(&mut self.entries)?;
            self.sampling.0.push((field.name, given));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.entries.next_value_seed(seed)
    }
}

impl<T: HasSampling + ToSchema> ToSchema for WithSampling<T> {
    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

impl<T: HasSampling + ToSchema> PartialSchema for WithSampling<T> {
    fn schema() -> RefOr<Schema> {
        let mut schema = T::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.properties.extend(T::FIELDS.iter().map(|field| (field.name.to_owned(), field.schema())));
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::parse;

    #[derive(Debug, Deserialize, ToSchema)]
    struct Small {
        model: Option<String>,
    }

    impl HasSampling for Small {
        const FIELDS: &'static [SamplingField] = &[TEMPERATURE, REPETITION_PENALTY.named("repeat_penalty"), STOP];
    }

    fn read(text: &str) -> Result<WithSampling<Small>, ApiError> {
        parse(text.as_bytes())
    }

    #[test]
    fn fields_are_read_beside_those_of_the_body() {
        let text = r#"{"temperature": 0.5, "model": "a", "top_k": "not ours", "stop": "x", "repeat_penalty": null}"#;
        let WithSampling { body, sampling } = read(text).unwrap();
        assert_eq!((body.model.as_deref(), sampling.number(&TEMPERATURE)), (Some("a"), Some(0.5)));
        let settings = sampling.check(Sampling { top_k: 40, ..Sampling::default() }).unwrap();
        assert_eq!(settings.sampling, Sampling { temperature: 0.5, top_k: 40, ..Sampling::default() });
        assert_eq!((settings.seed, settings.stop), (None, vec!["x".to_owned()]));
    }

    #[test]
    fn errors_name_the_field() {
        let check = |text: &str, param: Option<&str>, message: &str| {
            let error = read(text).and_then(|read| read.sampling.check(Sampling::default())).expect_err(text);
            assert_eq!(error.param.as_deref(), param, "{text}: {error}");
            assert!(error.message.contains(message), "{text}: {error}");
        };
        check(r#"{"temperature": "x"}"#, Some("temperature"), "temperature: invalid type: string \"x\", expected f64");
        check(r#"{"stop": ["a", 1]}"#, Some("stop[1]"), "stop[1]: invalid type: integer `1`, expected a string");
        check(r#"{"model": 7}"#, Some("model"), "model: invalid type: integer `7`, expected a string");
        check(r#"{"temperature": 3}"#, Some("temperature"), "temperature is 3; it must be between 0 and 2");
        check(r#"{"repeat_penalty": 20}"#, Some("repeat_penalty"), "repeat_penalty is 20; it must be");
        check(r#"{"temperature": null, "temperature": 1}"#, None, "duplicate field `temperature`");
        check("7", None, "invalid type: integer `7`, expected struct Small");
    }

    #[test]
    fn biases_name_tokens() {
        assert_eq!(biases(&[("7".to_owned(), -100.0)]).unwrap(), [(7, -100.0)]);
        for (token, bias) in [("x", 0.0), ("-1", 0.0), ("4294967296", 0.0), ("7", 100.5), ("7", f64::NAN)] {
            assert!(biases(&[(token.to_owned(), bias)]).is_err(), "{token} {bias}");
        }
    }
}
