//! Streams that go on where they broke off, also after the server was started anew, without anything being kept.
//!
//! A token depends on model, request, seed and position only. The number of an event therefore carries the seed and a
//! digest of the rest: a client that sends the same request with the last number it saw gets the same answer computed
//! again, and is told what comes after. Whoever could use another's number would have to send the same request, and
//! would learn no more than by asking for it.

use axum::http::HeaderMap;

use crate::desk::{Caller, Desk};
use crate::error::{ApiError, Kind};

/// The header that names the last event a client has seen.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which stream this is, and how much of it the client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// What the answer is drawn with unless the request says it.
    pub(crate) seed: u64,
    /// Tells the request from all others: by model, key and body.
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
}

impl Ticket {
    /// A ticket for a request: a new one, or one that goes on after the event it names.
    pub(crate) fn new(desk: &Desk, caller: &Caller, body: &[u8], last: &LastEvent) -> Result<Ticket, ApiError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(desk.model.details.digest.as_bytes()).update(&caller.tenant.0.to_le_bytes()).update(body);
        let mut digest = [0; 8];
        hasher.finalize_xof().fill(&mut digest);
        let digest = u64::from_le_bytes(digest);
        let Some(last) = &last.0 else { return Ok(Ticket { seed: desk.number(), digest, seen: 0 }) };
        let parsed = Ticket::parse(last).ok_or_else(|| {
            ApiError::invalid(LAST_EVENT_ID, "Last-Event-ID is no event of this server; leave it out to begin anew")
        })?;
        match parsed.digest == digest {
            true => Ok(parsed),
            false => {
                let message = "Last-Event-ID belongs to another request, key or model; send the request as it was, or \
                               leave it out to begin anew";
                Err(ApiError { param: Some(LAST_EVENT_ID.to_owned()), ..ApiError::new(Kind::Conflict, message) })
            }
        }
    }

    /// An error if a stream of several answers should go on: which comes first may be different each time.
    pub(crate) fn check(&self, answers: usize) -> Result<(), ApiError> {
        match self.seen == 0 || answers == 1 {
            true => Ok(()),
            false => Err(ApiError::invalid(LAST_EVENT_ID, "a stream of several answers cannot go on; ask for it anew")),
        }
    }

    /// What an event is called.
    pub(crate) fn event(&self, number: u64) -> String {
        format!("{:016x}{:016x}-{number}", self.seed, self.digest)
    }

    fn parse(event: &str) -> Option<Ticket> {
        let (name, number) = event.split_once('-')?;
        let (seed, digest) = name.split_at_checked(16)?;
        let hexadecimal = |digits: &str| {
            let fits = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            fits.then(|| u64::from_str_radix(digits, 16).ok())?
        };
        let seen = number.parse::<u64>().ok()?.checked_add(1)?;
        Some(Ticket { seed: hexadecimal(seed)?, digest: hexadecimal(digest)?, seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_their_stream() {
        let ticket = Ticket { seed: 7, digest: u64::MAX, seen: 0 };
        assert_eq!(Ticket::parse(&ticket.event(41)), Some(Ticket { seen: 42, ..ticket.clone() }));
        let name = &ticket.event(0)[..32];
        for wrong in
            ["", "-", "0", "7-1", name, &format!("{name}-"), &format!("{name}--1"), &format!("+{}-1", &name[1..])]
        {
            assert_eq!(Ticket::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Ticket::parse(&format!("{name}-{}", u64::MAX)), None);
        assert_eq!(Ticket::parse(&format!("{}é-1", &name[..31])), None);
    }
}
