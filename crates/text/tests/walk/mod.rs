//! Answers drawn at random from the masks of a format.

use cascadia_text::{Constraint, GrammarCompiler, Tokenizer};

/// Longest random answer; from half of it on, tokens that close something are preferred.
const MOST_TOKENS: usize = 600;

/// A tokenizer with the tokens that end an answer.
pub(crate) struct Model {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) ends: Vec<u32>,
}

/// What is done with forced tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    AtOnce,
    OneByOne,
}

/// Tokenizers of different kinds.
pub(crate) fn models() -> Vec<Model> {
    vec![
        Model::new("llama3", &["<|eot_id|>", "<|end_of_text|>"]),
        Model::new("llama2", &["</s>"]),
        Model::new("gemma", &["<eos>", "<end_of_turn>"]),
        Model::new("qwen2", &["<|im_end|>"]),
    ]
}

impl Model {
    pub(crate) fn new(name: &str, ends: &[&str]) -> Model {
        let path = format!("{}/../../fixtures/tokenizers/{name}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
        let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
        let ends = ends.iter().map(|end| tokenizer.token_id(end).unwrap_or_else(|| panic!("{name}: {end}"))).collect();
        Model { tokenizer, ends }
    }

    pub(crate) fn compiler(&self) -> GrammarCompiler {
        GrammarCompiler::new(&self.tokenizer, &self.ends).unwrap()
    }

    /// A random answer that came to its end.
    pub(crate) fn walk(&self, mut constraint: Constraint, dice: &mut Dice, forced: Forced) -> Option<Vec<u32>> {
        let mut answer: Vec<u32> = Vec::new();
        while answer.len() < MOST_TOKENS {
            if forced == Forced::AtOnce {
                for token in constraint.forced() {
                    constraint.accept(token).unwrap();
                    answer.push(token);
                }
            }
            if constraint.must_end() || (constraint.may_end() && dice.below(4) == 0) {
                return Some(answer);
            }
            let mut allowed = constraint.mask().unwrap().tokens();
            if answer.len() > MOST_TOKENS / 2 || dice.below(3) == 0 {
                let closing: Vec<u32> = allowed.iter().copied().filter(|&id| self.closes(id)).collect();
                allowed = if closing.is_empty() { allowed } else { closing };
            }
            let token = allowed[dice.below(allowed.len())];
            constraint.accept(token).unwrap();
            if self.ends.contains(&token) {
                return Some(answer);
            }
            answer.push(token);
        }
        None
    }

    /// The text of an answer, names of control tokens included.
    pub(crate) fn text(&self, answer: &[u32]) -> String {
        let bytes = answer.iter().flat_map(|&id| self.tokenizer.token_bytes(id).unwrap().to_vec()).collect();
        String::from_utf8(bytes).expect("whole characters")
    }

    fn closes(&self, token: u32) -> bool {
        matches!(
            self.tokenizer.token_bytes(token),
            Some(b"\"" | b"}" | b"]" | b"\"}" | b"e" | b"l" | b"\n" | b"<" | b"/")
        )
    }
}

/// A fixed sequence of numbers that look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}
