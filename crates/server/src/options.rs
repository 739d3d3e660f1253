//! Options of a server: where it listens, who may use it, and its limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::answer::resume_log::ResumeLogOptions;
use crate::error::ServerError;
use crate::observe::fleet_board::FleetBoard;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 takes any free one.
    pub port: u16,
    /// The key file; without it everybody who can connect may use the server.
    pub keys: Option<PathBuf>,
    /// Certificate and private key, both PEM; without them HTTP is not encrypted.
    pub tls: Option<TlsFiles>,
    /// Listen to other machines even without keys, or without TLS.
    pub insecure: bool,
    /// Pages of other origins that may use the server, such as `https://chat.example`; none by default.
    pub origins: Vec<String>,
    /// An OpenTelemetry collector that receives a span of every request, such as `http://localhost:4318`.
    pub collector: Option<String>,
    /// The state of the fleet, if one computes.
    pub fleet: Option<FleetBoard>,
    /// Where the tokens of streams are kept, so that they need not be computed again after the server was killed.
    pub resume_log: Option<ResumeLogOptions>,
    /// What clients may call the model besides its own name, such as `gpt-4o`.
    pub aliases: Vec<String>,
    /// Limits on what clients may use.
    pub limits: Limits,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain of certificates.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Limits on what clients may use, fixed at start.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once. For one more, the one that has been idle longest is closed; while all have requests, more
    /// are refused with 503.
    pub connections: usize,
    /// Bytes of the head of a request.
    pub header_bytes: usize,
    /// Time for the head of a request, and for an unused connection.
    pub header_time: Duration,
    /// Bytes of one body.
    pub body_bytes: usize,
    /// Bytes of all bodies whose answers are not sent yet, and of these answers.
    pub bodies_bytes: usize,
    /// Bytes of all compiled output formats, remembered or of requests that wait.
    pub formats_bytes: usize,
    /// Bytes of all responses that are kept for later requests.
    pub responses_bytes: usize,
    /// Bytes of everything that is tokenised at once: most texts are tokenised in parts, of others a long one takes much.
    pub preparation_bytes: usize,
    /// Time for a body.
    pub body_time: Duration,
    /// How long a client may not read what is sent to it.
    pub stall_time: Duration,
    /// Time for an answer, waiting included.
    pub answer_time: Duration,
    /// Time for answers to finish when the server stops.
    pub drain_time: Duration,
    /// Requests rendered and tokenised at once; tenants that wait take turns.
    pub workers: usize,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            keys: None,
            tls: None,
            insecure: false,
            origins: Vec::new(),
            collector: None,
            fleet: None,
            resume_log: None,
            aliases: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // Below the 1024 open files that many systems allow a process.
            connections: 900,
            header_bytes: 16 << 10,
            header_time: Duration::from_secs(10),
            body_bytes: 8 << 20,
            bodies_bytes: 64 << 20,
            formats_bytes: 64 << 20,
            responses_bytes: 32 << 20,
            preparation_bytes: 512 << 20,
            body_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(30),
            answer_time: Duration::from_secs(600),
            drain_time: Duration::from_secs(30),
            workers: 2,
        }
    }
}

impl Limits {
    /// Limits of a server whose process may take so many bytes: an eighth for bodies, answers and, as a quarter of that, responses
    /// that are kept; an eighth for output formats; and a sixteenth for tokenising; where that is less than usual.
    pub fn within(self, memory: u64) -> Limits {
        let eighth = usize::try_from(memory / 8).unwrap_or(usize::MAX);
        Limits {
            body_bytes: self.body_bytes.min((eighth - eighth / 4) / 2),
            bodies_bytes: self.bodies_bytes.min(eighth - eighth / 4),
            formats_bytes: self.formats_bytes.min(eighth),
            responses_bytes: self.responses_bytes.min(eighth / 4),
            preparation_bytes: self.preparation_bytes.min(eighth / 2),
            ..self
        }
    }

    /// What clients may make the server keep, which is not there for the model.
    pub fn memory_bytes(&self) -> u64 {
        let kept = self.bodies_bytes + self.responses_bytes + self.formats_bytes + self.preparation_bytes;
        kept as u64
    }
}

impl ServerOptions {
    /// Whether only this machine can connect.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host.is_loopback()
    }

    /// Refuses an address that other machines reach unless clients have keys and nobody on the way can read them.
    pub(crate) fn check_exposure(&self) -> Result<(), ServerError> {
        if self.is_loopback() || self.insecure {
            return Ok(());
        }
        let address = SocketAddr::new(self.host, self.port).to_string();
        match (&self.keys, &self.tls) {
            (None, _) => Err(ServerError::Exposed { address }),
            (Some(_), None) => Err(ServerError::PlainText { address }),
            (Some(_), Some(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_take_a_third_of_a_small_memory_and_no_more_than_usual_of_a_large_one() {
        let (usual, mib) = (Limits::default(), 1 << 20);
        let small = usual.clone().within(64 * mib);
        assert_eq!((small.memory_bytes(), small.body_bytes), (20 * mib, 3 << 20));
        assert!(small.body_bytes * 2 <= small.bodies_bytes, "two of the largest bodies fit");
        assert_eq!(usual.clone().within(1 << 40).memory_bytes(), usual.memory_bytes());
    }
}
