//! Pages of the KV cache on a connection: which tokens of one are asked for, and the pieces in which they come.

use std::ops::Range;

use cascadia_model::{PAGE_TOKENS, PageClass, PageId, PageRows};

use crate::Digest;
use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer, broken};

/// The most bytes of a piece.
pub(crate) const MOST_PIECE: u32 = 4 << 20;
/// The most bytes of its frame.
pub(crate) const MOST_FRAME: u32 = MOST_PIECE + 128;
/// The most bytes of a page in all layers of a stage.
const MOST_PAGE: u32 = 512 << 20;

/// Some tokens of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageTokens {
    pub(crate) class: PageClass,
    pub(crate) page: PageId,
    /// Counted from the first of the page.
    pub(crate) tokens: Range<u32>,
}

/// What a worker should send of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    pub(crate) of: PageTokens,
    /// Bytes that have come. The first piece is copied when it is asked for, with all that follow: what is written meanwhile
    /// does not show.
    pub(crate) offset: u32,
    /// The most bytes to send.
    pub(crate) most: u32,
}

/// Some bytes of those tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagePiece<'a> {
    pub(crate) of: PageTokens,
    /// Bytes before it.
    pub(crate) offset: u32,
    /// Bytes of all pieces.
    pub(crate) total: u32,
    /// The digest of all pieces.
    pub(crate) digest: Digest,
    pub(crate) bytes: &'a [u8],
}

/// The end that has a page: what it copied, until all of that was sent.
#[derive(Default)]
pub(crate) struct PageSource {
    copy: Option<(PageTokens, Digest, Vec<u8>)>,
}

/// The end that should have it: the pieces that have come.
#[derive(Default)]
pub(crate) struct PageSink {
    incoming: Option<(PageTokens, u32, Digest, Vec<u8>)>,
}

impl PageTokens {
    fn write(&self, writer: Writer) -> Writer {
        let PageTokens { class, page, tokens } = self;
        writer.number(*class as u32).number(*page).number(tokens.start).number(tokens.end)
    }

    fn read(reader: &mut Reader<'_>) -> Result<PageTokens, LinkError> {
        let class = *PageClass::ALL.get(reader.number()? as usize).ok_or_else(broken)?;
        let (page, tokens) = (reader.number()?, reader.number()?..reader.number()?);
        let is_some = tokens.start < tokens.end && tokens.end <= PAGE_TOKENS;
        is_some.then_some(PageTokens { class, page, tokens }).ok_or_else(broken)
    }
}

impl PageRequest {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.of.write(Writer::default()).number(self.offset).number(self.most).0
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<PageRequest, LinkError> {
        let mut reader = Reader(bytes);
        let of = PageTokens::read(&mut reader)?;
        let (offset, most) = (reader.number()?, reader.number()?);
        reader.end()?;
        (most <= MOST_PIECE).then_some(PageRequest { of, offset, most }).ok_or_else(broken)
    }
}

impl<'a> PagePiece<'a> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let piece = self.of.write(Writer::default()).number(self.offset).number(self.total);
        piece.bytes(&self.digest.0).bytes(self.bytes).0
    }

    /// Pieces lie within a page, and those of a page that has bytes are not empty: each is a step forward.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<PagePiece<'a>, LinkError> {
        let mut reader = Reader(bytes);
        let of = PageTokens::read(&mut reader)?;
        let (offset, total, digest) = (reader.number()?, reader.number()?, Digest(reader.array()?));
        let piece = PagePiece { of, offset, total, digest, bytes: reader.0 };
        let fits = u64::from(offset) + piece.bytes.len() as u64 <= u64::from(total) && total <= MOST_PAGE;
        let is_some = piece.bytes.is_empty() == (total == 0) && piece.bytes.len() <= MOST_PIECE as usize;
        (fits && is_some).then_some(piece).ok_or_else(broken)
    }

    /// Whether it is the last.
    pub(crate) fn is_last(&self) -> bool {
        self.offset + self.bytes.len() as u32 == self.total
    }
}

impl PageSource {
    /// The frame with the piece that is asked for, or why there is none.
    pub(crate) fn piece(&mut self, request: &PageRequest, pages: Option<&dyn PageRows>) -> Result<Vec<u8>, String> {
        let PageRequest { of, offset, most } = request;
        if *offset == 0 {
            let pages = pages.ok_or("this stage has no pages that can be copied")?;
            let copy = pages.copy_rows(of.class, of.page, &of.tokens).map_err(|error| error.to_string())?;
            if copy.len() > MOST_PAGE as usize {
                return Err(format!("a page of {} bytes is too large to be copied", copy.len()));
            }
            self.copy = Some((of.clone(), Digest::of(&copy), copy));
        }
        let copied = self.copy.as_ref().filter(|(copied, ..)| copied == of);
        let (_, digest, copy) = copied.ok_or("the beginning of the page was not asked for")?;
        let rest = copy.get(*offset as usize..).ok_or("the page has fewer bytes")?;
        let bytes = &rest[..rest.len().min(*most as usize)];
        let piece = PagePiece { of: of.clone(), offset: *offset, total: copy.len() as u32, digest: *digest, bytes };
        let (frame, is_last) = (piece.bytes(), piece.is_last());
        self.copy.take_if(|_| is_last);
        Ok(frame)
    }
}

impl PageSink {
    /// Takes a piece. Once all have come and have their digest, they are put into the page.
    pub(crate) fn take(&mut self, frame: &[u8], pages: Option<&dyn PageRows>) -> Result<(), LinkError> {
        let piece = PagePiece::parse(frame)?;
        let PagePiece { of: PageTokens { class, page, tokens }, total, digest, .. } = &piece;
        let pages = pages.ok_or_else(broken)?;
        if piece.offset == 0 {
            if pages.row_bytes(*class, tokens) != *total as usize {
                return Err(LinkError::Broken(format!("{total} bytes came for tokens {tokens:?} of a {class:?} page")));
            }
            self.incoming = Some((piece.of.clone(), *total, *digest, Vec::new()));
        }
        let mut incoming = self.incoming.take().ok_or_else(broken)?;
        let (of, all, whole, bytes) = &mut incoming;
        if (&*of, *all, &*whole, bytes.len()) != (&piece.of, *total, digest, piece.offset as usize) {
            return Err(broken());
        }
        bytes.extend_from_slice(piece.bytes);
        if !piece.is_last() {
            self.incoming = Some(incoming);
            return Ok(());
        }
        if Digest::of(bytes) != *whole {
            return Err(LinkError::Broken(format!("{class:?} page {page} is not what was announced")));
        }
        pages.fill_rows(*class, *page, tokens, bytes).map_err(|error| LinkError::Broken(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cascadia_model::StageError;

    use super::*;

    /// A page of bytes, ten for each token.
    struct Bytes(Mutex<Vec<u8>>);

    impl PageRows for Bytes {
        fn row_bytes(&self, _: PageClass, tokens: &Range<u32>) -> usize {
            10 * tokens.len()
        }

        fn copy_rows(&self, _: PageClass, _: PageId, tokens: &Range<u32>) -> Result<Vec<u8>, StageError> {
            Ok(self.0.lock().expect("whole")[10 * tokens.start as usize..10 * tokens.end as usize].to_vec())
        }

        fn fill_rows(&self, _: PageClass, _: PageId, tokens: &Range<u32>, bytes: &[u8]) -> Result<(), StageError> {
            self.0.lock().expect("whole")[10 * tokens.start as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    fn page(byte: impl Fn(usize) -> u8) -> Bytes {
        Bytes(Mutex::new((0..10 * PAGE_TOKENS as usize).map(byte).collect()))
    }

    fn of(tokens: Range<u32>) -> PageTokens {
        PageTokens { class: PageClass::Tail, page: 3, tokens }
    }

    /// Copies tokens in pieces of at most so many bytes, which `change` may change; gives what the other page has then.
    fn copy(tokens: Range<u32>, most: u32, change: impl Fn(usize, &mut Vec<u8>)) -> Result<Vec<u8>, LinkError> {
        let (here, there) = (page(|at| at as u8), page(|_| 0));
        let (mut source, mut sink, mut offset) = (PageSource::default(), PageSink::default(), 0);
        for number in 0.. {
            let request = PageRequest { of: of(tokens.clone()), offset, most };
            assert_eq!(PageRequest::parse(&request.bytes()), Ok(request.clone()));
            let mut frame = source.piece(&request, Some(&here)).expect("it is there");
            let piece = PagePiece::parse(&frame).expect("it was written by this program");
            let (length, is_last) = (piece.bytes.len() as u32, piece.is_last());
            // What is written meanwhile does not show.
            here.0.lock().expect("whole").fill(0xee);
            change(number, &mut frame);
            sink.take(&frame, Some(&there))?;
            offset += length;
            if is_last {
                break;
            }
        }
        Ok(there.0.into_inner().expect("whole"))
    }

    #[test]
    fn tokens_arrive_as_they_were_when_they_were_asked_for() {
        for most in [1, 7, 100, MOST_PIECE] {
            let there = copy(3..9, most, |_, _| {}).expect("it arrives");
            let expected: Vec<u8> =
                (0..640).map(|at: usize| if (30..90).contains(&at) { at as u8 } else { 0 }).collect();
            assert!(there == expected, "in pieces of {most}");
        }
    }

    #[test]
    fn what_is_not_the_page_that_was_announced_is_refused() {
        let refused = |number: usize, at: usize| {
            copy(0..4, 16, |piece, frame| {
                if piece == number {
                    frame[at] ^= 1;
                }
            })
            .is_err()
        };
        // Class, page, tokens, offset, total, digest and bytes.
        for at in (0..24).step_by(4).chain([24, 55, 56, 60]) {
            let is_of_another_page = at <= 4;
            assert!(refused(1, at), "byte {at} of the second piece");
            assert!(refused(0, at) || is_of_another_page, "byte {at} of the first piece");
        }
        let frame = |total: u32, bytes: &[u8]| {
            PagePiece { of: of(0..1), offset: 0, total, digest: Digest([0; 32]), bytes }.bytes()
        };
        for (total, bytes) in [(MOST_PAGE + 1, &[1_u8][..]), (4, &[]), (0, &[1]), (2, &[1, 2, 3])] {
            assert!(PagePiece::parse(&frame(total, bytes)).is_err(), "{total} {bytes:?}");
        }
        let request = PageRequest { of: of(0..1), offset: 5, most: 9 };
        assert!(PageSource::default().piece(&request, Some(&page(|_| 0))).is_err());
        assert!(PageRequest::parse(&PageRequest { most: MOST_PIECE + 1, ..request }.bytes()).is_err());
        for (first, end) in [(3, 3), (5, 2), (0, PAGE_TOKENS + 1)] {
            assert!(PageRequest::parse(&PageRequest { of: of(first..end), offset: 0, most: 9 }.bytes()).is_err());
        }
    }
}
