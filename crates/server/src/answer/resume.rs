//! Streams that continue where they broke off, even after a restart of the server, without keeping anything.
//!
//! A token depends on model, request, seed and position only. The id of an event therefore carries the seed and a digest
//! of the rest: a client that sends the same request with the last id it saw gets the same answer computed again, and
//! receives what comes after. Using another client's id takes the same request, and reveals no more than asking for it.
//! A [log](crate::answer::resume_log) of tokens saves computing them again.

use axum::http::HeaderMap;
use cascadia_engine::AdapterHandle;

use crate::error::{ApiError, ErrorKind};
use crate::model::frontend::{ModelFrontend, PreparedRequest};

/// The header that names the last event a client has seen.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which stream this is, and how much of it the client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResumeToken {
    /// What the answer is sampled with unless the request has its own seed.
    pub(crate) seed: u64,
    /// Distinguishes requests: see [`digest`].
    digest: u64,
    /// Events that are not sent again.
    pub(crate) seen: u64,
}

/// The id of an event as a client sent it; empty if it sent none.
pub(crate) struct LastEventId(Option<String>);

impl LastEventId {
    pub(crate) fn of(headers: &HeaderMap) -> LastEventId {
        let value = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty());
        LastEventId(value.map(|value| value.to_str().unwrap_or("?").to_owned()))
    }

    /// The stream it belongs to; [`ResumeToken::resume`] checks that this is the one asked for now.
    pub(crate) fn token(&self) -> Result<Option<ResumeToken>, ApiError> {
        let Some(event) = &self.0 else { return Ok(None) };
        let message = "Last-Event-ID is not an event of this server; leave it out to start over";
        ResumeToken::parse(event).map(Some).ok_or_else(|| ApiError::invalid(LAST_EVENT_ID, message))
    }
}

/// A digest of everything that an answer depends on besides its seed. The prompt is taken as the model gets it, because
/// a template may contain the time; the context, because positions may be scaled to it; the numerics, because they round;
/// the adapter by its content, because another one may have its name by now.
pub(crate) fn digest(frontend: &ModelFrontend, prepared: &PreparedRequest, path: &str, body: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    // With its length before it, no field can be mistaken for the end of another.
    let mut add = |field: &[u8]| {
        hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
    };
    add(frontend.model.details.digest.as_bytes());
    add(&frontend.model.service.context().to_le_bytes());
    add(frontend.model.service.numerics().as_bytes());
    let adapter = prepared.adapter().map(AdapterHandle::id);
    add(adapter.as_ref().map_or(&[][..], |adapter| &adapter.0[..]));
    add(&prepared.tenant().0.to_le_bytes());
    add(path.as_bytes());
    add(body);
    for (tokens, max_tokens) in prepared.prompts_and_limits() {
        add(&tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
        add(&max_tokens.to_le_bytes());
    }
    let mut digest = [0; 8];
    hasher.finalize_xof().fill(&mut digest);
    u64::from_le_bytes(digest)
}

impl ResumeToken {
    /// A stream that begins.
    pub(crate) fn new(seed: u64, digest: u64) -> ResumeToken {
        ResumeToken { seed, digest, seen: 0 }
    }

    /// The same stream after the last event that the client saw, if it saw any. An error if that belongs to another
    /// stream, or to one of several answers, whose order may be different each time.
    pub(crate) fn resume(self, last: Option<ResumeToken>, answers: usize) -> Result<ResumeToken, ApiError> {
        match last {
            None => Ok(self),
            Some(last) if last.digest != self.digest => {
                let message = "Last-Event-ID belongs to another request, key or model, or the prompt or a limit has \
                               changed since; send the same request again, or leave it out to start over";
                Err(ApiError { param: Some(LAST_EVENT_ID.to_owned()), ..ApiError::new(ErrorKind::Conflict, message) })
            }
            Some(_) if answers != 1 => Err(ApiError::invalid(
                LAST_EVENT_ID,
                "a stream of several answers cannot be resumed; send the request again without Last-Event-ID",
            )),
            Some(last) => Ok(last),
        }
    }

    /// Why a stream cannot continue whose answer, computed again, ended before the event that the client saw.
    pub(crate) fn fell_short() -> ApiError {
        let message = "the answer ended before the event that Last-Event-ID names, for example at its deadline; leave \
                       it out to start over";
        ApiError { param: Some(LAST_EVENT_ID.to_owned()), ..ApiError::new(ErrorKind::Conflict, message) }
    }

    /// The id of the answer, after a prefix: the same when the stream is resumed.
    pub(crate) fn stream_id(&self) -> String {
        format!("{:016x}{:016x}", self.seed, self.digest)
    }

    pub(crate) fn event_id(&self, number: u64) -> String {
        format!("{}-{number}", self.stream_id())
    }

    fn parse(event: &str) -> Option<ResumeToken> {
        let (stream, number) = event.split_once('-')?;
        let (seed, digest) = stream.split_at_checked(16)?;
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
    fn event_ids_name_their_stream() {
        let token = ResumeToken { seed: 7, digest: u64::MAX, seen: 0 };
        assert_eq!(ResumeToken::parse(&token.event_id(41)), Some(ResumeToken { seen: 42, ..token.clone() }));
        let stream = &token.event_id(0)[..32];
        for wrong in [
            "",
            "-",
            "0",
            "7-1",
            stream,
            &format!("{stream}-"),
            &format!("{stream}--1"),
            &format!("+{}-1", &stream[1..]),
        ] {
            assert_eq!(ResumeToken::parse(wrong), None, "{wrong}");
        }
        assert_eq!(ResumeToken::parse(&format!("{stream}-{}", u64::MAX)), None);
        assert_eq!(ResumeToken::parse(&format!("{}é-1", &stream[..31])), None);
    }
}
