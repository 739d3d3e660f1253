//! The vocabulary as `llguidance` sees it: a trie of bytes in which control tokens are kept apart from text.

use std::collections::HashMap;
use std::sync::Arc;

use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::work::WorkCounters;
use crate::{SpecialTokens, Tokenizer};

/// Tokens longer than this are left out: the trie has no room for them, and no answer needs them.
const LONGEST_TOKEN: usize = 512;
/// Of tokens with equal bytes only the first few count, since each one more costs a walk along all the others.
const MOST_EQUALS: u8 = 8;
/// Most bytes that are tokenised at once: many times the longest token, so that the beginning of a long text gets the
/// tokens it would have in the whole.
const TOKENIZED_AT_ONCE: usize = 8 * LONGEST_TOKEN;

/// A tokenizer with the trie of its tokens.
pub(super) struct TokenTrie {
    tokenizer: Tokenizer,
    trie: TokTrie,
    work: Arc<WorkCounters>,
}

/// A vocabulary that tokenises texts of any length as a whole.
struct Unbounded<'a>(&'a TokenTrie);

impl TokenTrie {
    pub(super) fn new(tokenizer: &Tokenizer, end_tokens: &[u32], work: Arc<WorkCounters>) -> TokenTrie {
        let size = tokenizer.vocabulary_size();
        let mut words: Vec<Vec<u8>> = vec![Vec::new(); size];
        let mut seen: HashMap<&[u8], u8> = HashMap::with_capacity(size);
        for (id, word) in words.iter_mut().enumerate() {
            let bytes = tokenizer.token_bytes(id as u32).unwrap_or_default();
            let times = seen.entry(bytes).or_default();
            if bytes.len() <= LONGEST_TOKEN && *times < MOST_EQUALS {
                *word = bytes.to_vec();
            }
            *times = times.saturating_add(1);
        }
        for id in tokenizer.reserved_tokens() {
            if let Some(word) = words.get_mut(id as usize).filter(|word| !word.is_empty()) {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
        }
        let known: Vec<u32> = end_tokens.iter().copied().filter(|&id| (id as usize) < size).collect();
        let info = TokRxInfo::new(size as u32, known.first().copied().unwrap_or(INVALID_TOKEN));
        let trie = TokTrie::from(&info, &words);
        let trie = if known.is_empty() { trie } else { trie.with_eos_tokens(&known) };
        TokenTrie { tokenizer: tokenizer.clone(), trie, work }
    }

    /// The tokens that the tokenizer itself cuts a text into, in the middle of an answer.
    ///
    /// Some tokenizers put a space in front of every text. Those give a line break a token of its own, so a text behind
    /// a line break shows how it is cut elsewhere.
    fn canonical(&self, text: &str) -> Vec<TokenId> {
        let encode = |text: &str| self.tokenizer.encode(text, SpecialTokens::Plain).unwrap_or_default();
        let tokens = encode(text);
        if self.spells(&tokens, text) {
            return tokens;
        }
        let tokens = encode(&format!("\n{text}"));
        let start = (1..=tokens.len().min(2)).find(|&start| self.spells(&tokens[start..], text));
        start.map_or_else(|| self.trie.greedy_tokenize(text.as_bytes()), |start| tokens[start..].to_vec())
    }

    fn spells(&self, tokens: &[TokenId], text: &str) -> bool {
        let mut rest = text.as_bytes();
        tokens.iter().all(|&token| match rest.strip_prefix(self.trie.token(token)) {
            Some(after) => {
                rest = after;
                true
            }
            None => false,
        }) && rest.is_empty()
    }
}

impl TokenizerEnv for TokenTrie {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.canonical(text))
    }

    /// The tokens at the beginning of a text, and how many of them no longer depend on what follows. Of a text that is
    /// tokenised in part, the half that is far from its end.
    fn tokenize_bytes_marker(&self, bytes: &[u8]) -> (Vec<TokenId>, usize) {
        let part = &bytes[..bytes.len().min(TOKENIZED_AT_ONCE)];
        self.work.count_tokenized(part.len());
        let (mut tokens, fixed) = Unbounded(self).tokenize_bytes_marker(part);
        if part.len() == bytes.len() {
            return (tokens, fixed);
        }
        tokens.truncate(tokens.len().div_ceil(2));
        let fixed = tokens.len();
        (tokens, fixed)
    }
}

impl TokenizerEnv for Unbounded<'_> {
    fn tok_trie(&self) -> &TokTrie {
        self.0.tok_trie()
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.tokenize_bytes(bytes)
    }
}
