//! JSON values with limits, so that a small body never becomes a large value.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most values inside one free-form field, nested ones included.
const MAX_NODES: usize = 1 << 16;

/// A list of at most `N` items.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct List<T, const N: usize>(pub(crate) Vec<T>);

impl<T, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for List<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for ListVisitor<T, N> {
    type Value = List<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {N}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == N {
                return Err(A::Error::custom(format!("more than {N} entries; send at most {N}")));
            }
            list.push(item);
        }
        Ok(List(list))
    }
}

/// One item, or a list of at most `N`.
#[derive(Clone, Debug)]
pub(crate) enum OneOrMany<T, const N: usize> {
    One(T),
    Many(Vec<T>),
}

impl<T, const N: usize> OneOrMany<T, N> {
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

impl<'de, const N: usize> Deserialize<'de> for OneOrMany<String, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTexts<const N: usize>;
        impl<'de, const N: usize> Visitor<'de> for TextOrTexts<N> {
            type Value = OneOrMany<String, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string, or a list of at most {N} strings")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                Ok(OneOrMany::Many(ListVisitor::<String, N>(PhantomData).visit_seq(items)?.0))
            }
        }
        deserializer.deserialize_any(TextOrTexts::<N>)
    }
}

/// A map of at most `N` entries, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs<T, const N: usize>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Pairs<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<T, const N: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for PairsVisitor<T, N> {
            type Value = Pairs<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of at most {N} entries")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = entries.next_entry()? {
                    if pairs.len() == N {
                        return Err(A::Error::custom(format!("more than {N} entries; send at most {N}")));
                    }
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor::<T, N>(PhantomData))
    }
}

/// Texts under names that a client gets back, within the limits that OpenAI sets: 16 of them, names of at most 64 and texts
/// of at most 512 characters.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
#[serde(transparent)]
pub(crate) struct Metadata(Map<String, Value>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Pairs(pairs) = Pairs::<String, 16>::deserialize(deserializer)?;
        for (name, text) in &pairs {
            for (what, text, most) in [("a name", name, 64), ("a text", text, 512)] {
                let characters = text.chars().count();
                if characters > most {
                    let problem = format!("{what} has {characters} characters; send at most {most}");
                    return Err(D::Error::custom(problem));
                }
            }
        }
        Ok(Metadata(pairs.into_iter().map(|(name, text)| (name, text.into())).collect()))
    }
}

/// A free-form value of bounded size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Json(pub(crate) Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let left = Cell::new(MAX_NODES);
        Node(&left).deserialize(deserializer).map(Json)
    }
}

/// Reads one value and counts it.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.ok_or_else(|| D::Error::custom(format!("more than {MAX_NODES} values; send less")))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_the_limits_are_kept_and_others_refused() {
        let list = |text: &str| serde_json::from_str::<List<u8, 2>>(text).map(|list| list.0).ok();
        assert_eq!(list("[1, 2]"), Some(vec![1, 2]));
        assert_eq!(list("[1, 2, 3]"), None);
        let texts = |text: &str| serde_json::from_str::<OneOrMany<String, 2>>(text).map(OneOrMany::into_vec).ok();
        assert_eq!(texts("\"a\""), Some(vec!["a".to_owned()]));
        assert_eq!(texts("[\"a\", \"b\"]"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(texts("[\"a\", \"b\", \"c\"]"), None);
        assert_eq!(texts("7"), None);
        let pairs = |text: &str| serde_json::from_str::<Pairs<i64, 1>>(text).map(|pairs| pairs.0).ok();
        assert_eq!(pairs("{\"5\": -1}"), Some(vec![("5".to_owned(), -1)]));
        assert_eq!(pairs("{\"5\": -1, \"6\": 1}"), None);
        let metadata = |count: usize, name: usize, text: usize| {
            let pairs = (0..count).map(|number| (format!("{number:0name$}"), "é".repeat(text).into()));
            serde_json::from_value::<Metadata>(pairs.collect::<Map<_, Value>>().into())
                .map_err(|error| error.to_string())
        };
        assert!(metadata(16, 64, 512).is_ok_and(|metadata| metadata.0.len() == 16));
        for (wrong, why) in [((17, 4, 4), "16 entries"), ((1, 65, 4), "a name has 65"), ((1, 4, 513), "a text has 513")]
        {
            assert!(metadata(wrong.0, wrong.1, wrong.2).unwrap_err().contains(why));
        }
        let text = r#"{"a": [1, -2, 0.5, null, true, "x", {"b": {}}]}"#;
        assert_eq!(serde_json::from_str::<Json>(text).unwrap().0, serde_json::from_str::<Value>(text).unwrap());
        let many = format!("[{}0]", "0,".repeat(MAX_NODES));
        assert!(serde_json::from_str::<Json>(&many).unwrap_err().to_string().contains("values"));
    }
}
