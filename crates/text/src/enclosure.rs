//! The special tokens that a model wants around a text, or around two texts and between them.

use serde_json::Value;

/// Most special tokens in one place.
const MOST_TOKENS: usize = 16;

/// Special tokens around texts: `[CLS] text [SEP]`, or `[CLS] first [SEP] second [SEP]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enclosure {
    one: [Vec<u32>; 2],
    two: Option<[Vec<u32>; 3]>,
}

/// Two texts as one sequence of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnclosedPair {
    /// All tokens.
    pub tokens: Vec<u32>,
    /// Where the second text begins.
    pub second: usize,
}

impl Enclosure {
    /// These tokens at the beginning of a text, at the end of each, and again between two.
    pub fn new(begin: Option<u32>, end: Option<u32>) -> Enclosure {
        let [begin, end] = [begin, end].map(|token| token.into_iter().collect::<Vec<u32>>());
        Enclosure { one: [begin.clone(), end.clone()], two: Some([begin, end.clone(), end]) }
    }

    /// What a `tokenizer.json` says in its post-processor; `None` where it adds nothing, or in a way that is not known.
    pub(crate) fn of_post_processor(processor: &Value) -> Option<Enclosure> {
        let nested = processor["processors"].as_array().into_iter().flatten();
        nested.chain([processor]).find_map(|step| match step["type"].as_str()? {
            "TemplateProcessing" => Enclosure::of_template(step),
            "BertProcessing" => Some(Enclosure::new(Some(token_of(&step["cls"])?), Some(token_of(&step["sep"])?))),
            "RobertaProcessing" => {
                let (begin, end) = (token_of(&step["cls"])?, token_of(&step["sep"])?);
                Some(Enclosure {
                    two: Some([vec![begin], vec![end, end], vec![end]]),
                    ..Enclosure::new(Some(begin), Some(end))
                })
            }
            _ => None,
        })
    }

    fn of_template(template: &Value) -> Option<Enclosure> {
        let tokens = &template["special_tokens"];
        let one = parts::<2>(&template["single"], ["A"], tokens)?;
        Some(Enclosure { one, two: parts::<3>(&template["pair"], ["A", "B"], tokens) })
    }

    /// How many tokens it adds to a text.
    pub fn added(&self) -> usize {
        self.one.iter().map(Vec::len).sum()
    }

    /// A text with the tokens around it.
    pub fn around(&self, text: &[u32]) -> Vec<u32> {
        [&self.one[0], text, &self.one[1]].concat()
    }

    /// How many tokens it adds to two texts; `None` where it does not say how to join them.
    pub fn added_to_two(&self) -> Option<usize> {
        self.two.as_ref().map(|parts| parts.iter().map(Vec::len).sum())
    }

    /// Two texts with the tokens around and between them; `None` where it does not say how to join them.
    pub fn around_two(&self, first: &[u32], second: &[u32]) -> Option<EnclosedPair> {
        let [before, between, after] = self.two.as_ref()?;
        let begin: [&[u32]; 3] = [before, first, between];
        let mut tokens = begin.concat();
        let at = tokens.len();
        tokens.extend_from_slice(second);
        tokens.extend_from_slice(after);
        Some(EnclosedPair { tokens, second: at })
    }
}

/// The id in a pair of name and id.
fn token_of(pair: &Value) -> Option<u32> {
    u32::try_from(pair[1].as_u64()?).ok()
}

/// The special tokens of a template before, between and after its texts, which come in this order.
fn parts<const N: usize>(template: &Value, texts: impl AsRef<[&'static str]>, tokens: &Value) -> Option<[Vec<u32>; N]> {
    let mut parts: [Vec<u32>; N] = std::array::from_fn(|_| Vec::new());
    let mut passed = 0;
    for piece in template.as_array()? {
        if let Some(text) = piece["Sequence"]["id"].as_str() {
            texts.as_ref().get(passed).filter(|expected| **expected == text)?;
            passed += 1;
        } else {
            let ids = tokens[piece["SpecialToken"]["id"].as_str()?]["ids"].as_array()?;
            for id in ids {
                parts[passed].push(u32::try_from(id.as_u64()?).ok()?);
            }
        }
    }
    let whole = passed == N - 1 && parts.iter().all(|part| part.len() <= MOST_TOKENS);
    whole.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn post_processors_of_every_kind() {
        let sequence = |id| json!({"Sequence": {"id": id, "type_id": 0}});
        let special = |id| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let template = json!({
            "type": "TemplateProcessing",
            "single": [special("a"), sequence("A"), special("b")],
            "pair": [special("a"), sequence("A"), special("b"), sequence("B"), special("b")],
            "special_tokens": {"a": {"ids": [1]}, "b": {"ids": [2]}},
        });
        let bert = json!({"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 2]});
        for processor in [&template, &bert, &json!({"processors": [{"type": "ByteLevel"}, template]})] {
            let found = Enclosure::of_post_processor(processor).expect("known");
            assert_eq!(found, Enclosure::new(Some(1), Some(2)));
            assert_eq!(found.around(&[7, 8]), [1, 7, 8, 2]);
            let pair = found.around_two(&[7], &[8, 9]).expect("it joins two");
            assert_eq!(pair, EnclosedPair { tokens: vec![1, 7, 2, 8, 9, 2], second: 3 });
        }
        let roberta = json!({"type": "RobertaProcessing", "cls": ["a", 1], "sep": ["b", 2]});
        let roberta = Enclosure::of_post_processor(&roberta).expect("known");
        assert_eq!(roberta.around_two(&[7], &[8]).expect("it joins two").tokens, [1, 7, 2, 2, 8, 2]);
        assert_eq!((roberta.added(), roberta.added_to_two()), (2, Some(4)));
    }

    #[test]
    fn what_is_not_known_adds_nothing() {
        let reversed =
            json!({"type": "TemplateProcessing", "special_tokens": {}, "single": [{"Sequence": {"id": "B"}}]});
        for processor in [json!(null), json!({"type": "ByteLevel"}), json!({"type": "BertProcessing"}), reversed] {
            assert_eq!(Enclosure::of_post_processor(&processor), None);
        }
    }
}
