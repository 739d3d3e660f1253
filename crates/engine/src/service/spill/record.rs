//! What a record is: how it is named, and what is in it before it is encrypted.

use cascadia_model::{PAGE_TOKENS, PageClass};
use zeroize::Zeroizing;

use super::cipher::Secret;
use crate::service::schedule::{Block, PrefixKey};

/// Which page of which text a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RecordId {
    /// A hash of everything that the page depends on.
    pub(super) name: [u8; 32],
    /// The class of the page.
    pub(super) class: PageClass,
}

/// How files of each class end.
const ENDINGS: [(PageClass, &str); 3] =
    [(PageClass::Full, "-full.kv"), (PageClass::Window, "-window.kv"), (PageClass::Tail, "-tail.kv")];

/// Names pages by what they depend on. Nobody who does not know the secret can find two texts of one name, or tell a text by
/// its name.
pub(super) struct Names {
    key: Zeroizing<[u8; 32]>,
    /// The model and its cache, as a hash.
    context: [u8; 32],
    /// Bytes of a name that are used; fewer only in tests, where names are to collide.
    pub(super) used_bytes: usize,
}

impl RecordId {
    /// The name of its file.
    pub(super) fn file_name(&self) -> String {
        let ending = ENDINGS.iter().find(|(class, _)| *class == self.class).map_or("", |(_, ending)| ending);
        format!("{}{ending}", blake3::Hash::from_bytes(self.name).to_hex())
    }

    /// The record whose file has this name.
    pub(super) fn from_file_name(file: &str) -> Option<RecordId> {
        let (class, name) = ENDINGS.iter().find_map(|(class, ending)| Some((*class, file.strip_suffix(ending)?)))?;
        let id = RecordId { name: *blake3::Hash::from_hex(name).ok()?.as_bytes(), class };
        (id.file_name() == file).then_some(id)
    }
}

impl Names {
    /// Names for pages of one model, whose `context` says everything that they depend on besides text and owner.
    pub(super) fn new(secret: &Secret, context: &str) -> Names {
        let (key, context) = (secret.derive("cascadia spill names"), *blake3::hash(context.as_bytes()).as_bytes());
        Names { key, context, used_bytes: 32 }
    }

    /// The names of all pages of a text.
    pub(super) fn of(&self, owner: PrefixKey, tokens: &[u32]) -> Vec<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.context).update(&owner.salt.to_le_bytes()).update(&adapter(owner));
        let page = |part: &[u32]| {
            part.iter().for_each(|token| _ = hasher.update(&token.to_le_bytes()));
            let mut name = *hasher.finalize().as_bytes();
            name[self.used_bytes..].fill(0);
            name
        };
        tokens.chunks_exact(PAGE_TOKENS as usize).map(page).collect()
    }

    /// The record of a page.
    pub(super) fn id(&self, block: &Block<'_>) -> Option<RecordId> {
        let name = self.of(block.owner, block.tokens).pop()?;
        Some(RecordId { name, class: block.class })
    }
}

/// What is encrypted: owner, class and the whole text up to the end of the page, then what the page holds.
pub(super) fn encode(block: &Block<'_>, page: &[u8]) -> Vec<u8> {
    let mut plain = head(block);
    plain.extend_from_slice(page);
    plain
}

/// What the page holds, if it is the page of exactly this text.
pub(super) fn decode<'a>(block: &Block<'_>, plain: &'a [u8]) -> Option<&'a [u8]> {
    plain.strip_prefix(head(block).as_slice())
}

fn head(Block { owner, tokens, class }: &Block<'_>) -> Vec<u8> {
    let mut head = Vec::with_capacity(head_bytes(tokens.len()));
    head.extend_from_slice(&owner.salt.to_le_bytes());
    head.extend_from_slice(&adapter(*owner));
    head.push(*class as u8);
    head.extend_from_slice(&(tokens.len() as u64).to_le_bytes());
    tokens.iter().for_each(|token| head.extend_from_slice(&token.to_le_bytes()));
    head
}

/// The adapter that computed a page; zeros where it was none.
fn adapter(owner: PrefixKey) -> [u8; 32] {
    owner.adapter.map_or([0; 32], |id| id.0)
}

/// Bytes before those of the page.
pub(super) fn head_bytes(tokens: usize) -> usize {
    8 + 32 + 1 + 8 + 4 * tokens
}

#[cfg(test)]
mod tests {
    use cascadia_model::AdapterId;

    use super::*;

    #[test]
    fn a_name_depends_on_everything() {
        let secret = |byte| Secret(Zeroizing::new([byte; 32]));
        let tokens: Vec<u32> = (0..130).collect();
        let owner = PrefixKey { salt: 3, adapter: Some(AdapterId([4; 32])), generation: 0 };
        let names = Names::new(&secret(1), "model");
        let known = names.of(owner, &tokens);
        assert_eq!(known.len(), 2, "whole pages alone");
        assert_eq!(names.of(owner, &tokens[..64]), known[..1], "the first page does not depend on the second");
        let mut changed = tokens.clone();
        changed[0] += 1;
        let others = [
            names.of(owner, &changed),
            names.of(PrefixKey { salt: 4, ..owner }, &tokens),
            names.of(PrefixKey { adapter: Some(AdapterId([5; 32])), ..owner }, &tokens),
            Names::new(&secret(1), "other").of(owner, &tokens),
            Names::new(&secret(2), "model").of(owner, &tokens),
        ];
        assert!(others.iter().flatten().all(|other| !known.contains(other)));
    }

    #[test]
    fn a_page_is_of_one_text_and_owner() {
        let tokens: Vec<u32> = (0..128).collect();
        let block = Block { owner: PrefixKey::default(), tokens: &tokens, class: PageClass::Full };
        let plain = encode(&block, &[1, 2, 3]);
        assert_eq!(plain.len(), head_bytes(128) + 3);
        assert_eq!(decode(&block, &plain), Some(&[1, 2, 3][..]));
        let mut changed = tokens.clone();
        changed[5] += 1;
        let others = [
            Block { tokens: &changed, ..block },
            Block { tokens: &tokens[..64], ..block },
            Block { class: PageClass::Tail, ..block },
            Block { owner: PrefixKey { salt: 1, ..block.owner }, ..block },
            Block { owner: PrefixKey { adapter: Some(AdapterId([1; 32])), ..block.owner }, ..block },
        ];
        others.iter().for_each(|other| assert_eq!(decode(other, &plain), None, "{other:?}"));
    }

    #[test]
    fn files_are_known_by_their_names() {
        for class in PageClass::ALL {
            let id = RecordId { name: [0xab; 32], class };
            assert_eq!(RecordId::from_file_name(&id.file_name()), Some(id));
        }
        let long = "ab".repeat(32);
        let others = [
            String::new(),
            long.clone(),
            format!("{long}.kv"),
            format!("AB{}-full.kv", &long[2..]),
            "-full.kv".to_owned(),
        ];
        others.iter().for_each(|other| assert_eq!(RecordId::from_file_name(other), None, "{other}"));
    }
}
