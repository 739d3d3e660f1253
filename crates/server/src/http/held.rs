//! A response body that keeps a value alive until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// The most bytes that are handed over at once. A connection takes a frame whole, and forgets the body with its last one: what
/// is handed over counts as sent although nobody may read it.
const PIECE_BYTES: usize = 16 << 10;

/// The response, with `held` dropped when its body is: after the last byte, or when the client has left.
pub(crate) fn holding<T: Send + Unpin + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(Held { body, rest: Bytes::new(), _held: held }))
}

struct Held<T> {
    body: Body,
    /// What is left of a frame that is handed over in pieces.
    rest: Bytes,
    _held: T,
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        inner.upper().into_iter().for_each(|upper| hint.set_upper(upper + rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_is_held_is_kept_until_the_last_piece_is_taken() {
        let (sent, held) = (vec![7; 10 * PIECE_BYTES + 1], Arc::new(()));
        let mut body = holding(Response::new(Body::from(sent.clone())), Arc::clone(&held)).into_body();
        let (mut received, mut context) = (Vec::new(), Context::from_waker(Waker::noop()));
        while !body.is_end_stream() {
            assert_eq!(body.size_hint().exact(), Some((sent.len() - received.len()) as u64));
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) else { panic!("no frame") };
            let piece = frame.into_data().expect("it has no trailers");
            assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
            received.extend_from_slice(&piece);
            assert_eq!(Arc::strong_count(&held), 2);
        }
        assert_eq!(received, sent);
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
