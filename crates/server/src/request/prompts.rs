//! Prompts as they come in a body: a text, tokens, or a list of either.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use crate::request::bounded::List;
use crate::request::validate::Source;

/// The most tokens of a prompt given as numbers; more than any context here.
const MAX_NUMBERS: usize = 1 << 18;
/// The most prompts of any request; those that generate take fewer.
pub(crate) const MAX_INPUTS: usize = 256;

/// At least one prompt.
#[derive(Clone, Debug)]
pub(crate) struct Prompts(pub(crate) Vec<Source>);

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prompts, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list of tokens, or a list of either")
    }

    fn visit_str<E>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![Source::Text(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Prompts, A::Error> {
        let (mut sources, mut numbers) = (Vec::new(), Vec::new());
        while let Some(item) = items.next_element::<Item>()? {
            match item {
                Item::Source(source) => sources.push(source),
                Item::Token(token) => numbers.push(token),
            }
            if sources.len() > MAX_INPUTS || numbers.len() > MAX_NUMBERS {
                return Err(A::Error::custom(format!("more than {MAX_INPUTS} inputs or {MAX_NUMBERS} tokens")));
            }
        }
        match (sources.is_empty(), numbers.is_empty()) {
            (true, true) => Err(A::Error::custom("an empty list; send at least one input")),
            (true, false) => Ok(Prompts(vec![Source::Tokens(numbers)])),
            (false, true) => Ok(Prompts(sources)),
            (false, false) => Err(A::Error::custom("tokens mixed with texts; send one or the other")),
        }
    }
}

/// One item of a list.
enum Item {
    Source(Source),
    Token(u32),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a token or a list of tokens")
    }

    fn visit_str<E>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Source(Source::Text(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, token: u64) -> Result<Item, E> {
        u32::try_from(token).map(Item::Token).map_err(|_| E::custom(format!("{token} is not a token")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Item, A::Error> {
        let items = serde::de::value::SeqAccessDeserializer::new(items);
        Ok(Item::Source(Source::Tokens(List::<u32, MAX_NUMBERS>::deserialize(items)?.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_come_in_four_forms() {
        let check = |text: &str, expected: Option<&str>| {
            let found = serde_json::from_str::<Prompts>(text).ok().map(|prompts| format!("{:?}", prompts.0));
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("\"a\"", Some("[Text(\"a\")]"));
        check("[\"a\", \"b\"]", Some("[Text(\"a\"), Text(\"b\")]"));
        check("[1, 2]", Some("[Tokens([1, 2])]"));
        check("[[1], [2]]", Some("[Tokens([1]), Tokens([2])]"));
        for wrong in ["[]", "[-1]", "[1.5]", "[4294967296]", "[\"a\", 1]", "{}", "null", "[[\"a\"]]", "[[-1]]"] {
            check(wrong, None);
        }
    }
}
