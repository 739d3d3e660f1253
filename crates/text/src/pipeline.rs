//! Tokenizers as Hugging Face defines them: normalise, split into words, find the tokens of each.

use tokenizers::normalizer::Range;
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizedString, Token,
};

use crate::added::{AddedToken, AddedTokens};
use crate::guard::StandIns;
use crate::pre_tokenizer::PreTokenizers;
use crate::{SpecialTokens, TextError};

/// How much longer normalisation may make a text: Unicode's own worst case is 18 times.
const MAX_GROWTH: usize = 32;

/// The steps from text to tokens.
pub(crate) struct Pipeline {
    /// Found in the text as it was given.
    pub(crate) added: AddedTokens,
    /// Found in the normalised text.
    pub(crate) added_normalized: AddedTokens,
    pub(crate) normalizers: Normalizers,
    pub(crate) pre_tokenizers: PreTokenizers,
    pub(crate) model: ModelWrapper,
}

impl Pipeline {
    /// Ids of a text; stand-ins become what they stand for once control tokens have been cut out.
    pub(crate) fn encode(
        &self,
        text: &str,
        special: SpecialTokens,
        stand_ins: &StandIns,
    ) -> Result<Vec<u32>, TextError> {
        self.run(text, special, stand_ins)
            .map_err(|error| TextError::Encode { bytes: text.len(), reason: error.to_string() })
    }

    pub(crate) fn token_id(&self, name: &str) -> Option<u32> {
        self.added.id(name).or_else(|| self.added_normalized.id(name)).or_else(|| self.model.token_to_id(name))
    }

    /// Every token that is matched by its name.
    pub(crate) fn named_tokens(&self) -> impl Iterator<Item = &AddedToken> {
        self.added.iter().chain(self.added_normalized.iter())
    }

    fn run(&self, text: &str, special: SpecialTokens, stand_ins: &StandIns) -> tokenizers::Result<Vec<u32>> {
        let mut parts = PreTokenizedString::from(text);
        parts.split(|_, part| Ok(cut(&self.added, part, special)))?;
        parts.split(|_, mut part| {
            self.normalizers.apply(&mut part)?;
            Ok(cut(&self.added_normalized, part, special))
        })?;
        for (private, shown) in stand_ins.pairs() {
            parts.split(|_, mut part| {
                part.replace(*private, shown.encode_utf8(&mut [0; 4]))?;
                Ok([part])
            })?;
        }
        if !stand_ins.pairs().is_empty() {
            // Ordinary text that became readable only now may be one token, too.
            parts.split(|_, part| Ok(cut(&self.added, part, SpecialTokens::Plain)))?;
            parts.split(|_, part| Ok(cut(&self.added_normalized, part, SpecialTokens::Plain)))?;
        }
        self.pre_tokenizers.apply(&mut parts)?;
        parts.tokenize(|part| self.model.tokenize(part.get()))?;
        let parts = parts.get_splits(OffsetReferential::Original, OffsetType::None);
        Ok(parts.iter().filter_map(|(_, _, tokens)| tokens.as_ref()).flatten().map(|token| token.id).collect())
    }
}

/// What is done to text before it is cut into words.
pub(crate) struct Normalizers(pub(crate) Vec<NormalizerWrapper>);

impl Normalizers {
    pub(crate) fn apply(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        let limit = text.len() * MAX_GROWTH + 1024;
        for normalizer in &self.0 {
            normalizer.normalize(text)?;
            if text.len() > limit {
                return Err("its normalizer makes the text too long".into());
            }
        }
        Ok(())
    }
}

fn cut(
    added: &AddedTokens,
    text: NormalizedString,
    special: SpecialTokens,
) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    let parts = added.split(text.get(), special);
    let slices = parts.into_iter().filter_map(|part| {
        let slice = text.slice(Range::Normalized(part.start..part.end))?;
        let token = |id| vec![Token::new(id, slice.get().to_owned(), (0, part.end - part.start))];
        let tokens = part.token.map(token);
        Some((slice, tokens))
    });
    slices.collect()
}
