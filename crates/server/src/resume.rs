//! Streams that go on where they broke off, also after the server was started anew, without anything being kept.
//!
//! A token depends on model, request, seed and position only. The number of an event therefore carries the seed and a
//! digest of the rest: a client that sends the same request with the last number it saw gets the same answer computed
//! again, and is told what comes after. Whoever could use another's number would have to send the same request, and
//! would learn no more than by asking for it. What is drawn again is less where there is a [log](crate::resume_log).

use axum::http::HeaderMap;

use crate::error::{ApiError, Kind};
use crate::model_frontend::{ModelFrontend, Prepared};

/// The header that names the last event a client has seen.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which stream this is, and how much of it the client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResumeToken {
    /// What the answer is drawn with unless the request says it.
    pub(crate) seed: u64,
    /// Tells what was asked from all else that may be: see [`digest`].
    digest: u64,
    /// Events that are not told again.
    pub(crate) seen: u64,
}

/// A number of an event as a client sent it; empty if it sent none.
pub(crate) struct LastEvent(Option<String>);

impl LastEvent {
    pub(crate) fn of(headers: &HeaderMap) -> LastEvent {
        let value = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty());
        LastEvent(value.map(|value| value.to_str().unwrap_or("?").to_owned()))
    }

    /// The ticket of the stream it belongs to; whether that is what is asked for now, [`ResumeToken::after`] knows.
    pub(crate) fn ticket(&self) -> Result<Option<ResumeToken>, ApiError> {
        let Some(event) = &self.0 else { return Ok(None) };
        let message = "Last-Event-ID is no event of this server; leave it out to begin anew";
        ResumeToken::parse(event).map(Some).ok_or_else(|| ApiError::invalid(LAST_EVENT_ID, message))
    }
}

/// A digest of all that an answer follows from besides its seed. The prompt is taken as the model gets it, because a
/// template may tell the time; the context, because positions may be stretched to it.
pub(crate) fn digest(desk: &ModelFrontend, prepared: &Prepared, path: &str, body: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    // With its length before it, no part can be mistaken for the end of another.
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    };
    add(desk.model.details.digest.as_bytes());
    add(&desk.model.service.context().to_le_bytes());
    add(&prepared.tenant().0.to_le_bytes());
    add(path.as_bytes());
    add(body);
    for (tokens, max_tokens) in prepared.asked() {
        add(&tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
        add(&max_tokens.to_le_bytes());
    }
    let mut digest = [0; 8];
    hasher.finalize_xof().fill(&mut digest);
    u64::from_le_bytes(digest)
}

impl ResumeToken {
    /// The ticket of a stream that begins.
    pub(crate) fn new(seed: u64, digest: u64) -> ResumeToken {
        ResumeToken { seed, digest, seen: 0 }
    }

    /// The same after the last event that the client saw, if it saw any; an error where that is of another stream, or
    /// of one with several answers: which comes first may be different each time.
    pub(crate) fn after(self, last: Option<ResumeToken>, answers: usize) -> Result<ResumeToken, ApiError> {
        match last {
            None => Ok(self),
            Some(last) if last.digest != self.digest => {
                let message = "Last-Event-ID belongs to another request, key or model, or to a prompt or limit that has \
                               changed since; send the request as it was, or leave it out to begin anew";
                Err(ApiError { param: Some(LAST_EVENT_ID.to_owned()), ..ApiError::new(Kind::Conflict, message) })
            }
            Some(_) if answers != 1 => {
                Err(ApiError::invalid(LAST_EVENT_ID, "a stream of several answers cannot go on; ask for it anew"))
            }
            Some(last) => Ok(last),
        }
    }

    /// Why a stream cannot go on whose answer, computed again, ended before the event that the client saw.
    pub(crate) fn fell_short() -> ApiError {
        let message = "the answer ended before the event that Last-Event-ID names, as when the time for it is over; \
                       leave it out to begin anew";
        ApiError { param: Some(LAST_EVENT_ID.to_owned()), ..ApiError::new(Kind::Conflict, message) }
    }

    /// What the answer is called, after a prefix: the same when the stream goes on.
    pub(crate) fn name(&self) -> String {
        format!("{:016x}{:016x}", self.seed, self.digest)
    }

    /// What an event is called.
    pub(crate) fn event(&self, number: u64) -> String {
        format!("{}-{number}", self.name())
    }

    fn parse(event: &str) -> Option<ResumeToken> {
        let (name, number) = event.split_once('-')?;
        let (seed, digest) = name.split_at_checked(16)?;
        let hexadecimal = |digits: &str| {
            let fits = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            fits.then(|| u64::from_str_radix(digits, 16).ok())?
        };
        let seen = number.parse::<u64>().ok()?.checked_add(1)?;
        Some(ResumeToken { seed: hexadecimal(seed)?, digest: hexadecimal(digest)?, seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_their_stream() {
        let ticket = ResumeToken { seed: 7, digest: u64::MAX, seen: 0 };
        assert_eq!(ResumeToken::parse(&ticket.event(41)), Some(ResumeToken { seen: 42, ..ticket.clone() }));
        let name = &ticket.event(0)[..32];
        for wrong in
            ["", "-", "0", "7-1", name, &format!("{name}-"), &format!("{name}--1"), &format!("+{}-1", &name[1..])]
        {
            assert_eq!(ResumeToken::parse(wrong), None, "{wrong}");
        }
        assert_eq!(ResumeToken::parse(&format!("{name}-{}", u64::MAX)), None);
        assert_eq!(ResumeToken::parse(&format!("{}é-1", &name[..31])), None);
    }
}
