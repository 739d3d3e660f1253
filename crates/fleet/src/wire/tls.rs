//! Who may speak with whom: TLS 1.3 with raw public keys, each end knowing the other's by its digest.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};

use crate::{Digest, Identity};

/// What a connection is for. The one who dials says so in the handshake, as the protocol above TLS (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A worker waits for a shard, or for steps.
    Work,
    /// A machine wants to become a member with an invitation.
    Join,
    /// A machine wants to become a member with a pairing code.
    Pair,
    /// A worker asks which keys its fleet has, and whether it should have a new one itself.
    Rotate,
}

impl Purpose {
    const ALL: [Purpose; 4] = [Purpose::Work, Purpose::Join, Purpose::Pair, Purpose::Rotate];

    fn name(self) -> &'static [u8] {
        match self {
            Purpose::Work => b"cascadia-work",
            Purpose::Join => b"cascadia-join",
            Purpose::Pair => b"cascadia-pair",
            Purpose::Rotate => b"cascadia-rotate",
        }
    }

    /// The one that was said; connections are for work unless they say something else.
    pub(crate) fn named(name: Option<&[u8]>) -> Purpose {
        Purpose::ALL.into_iter().find(|purpose| Some(purpose.name()) == name).unwrap_or(Purpose::Work)
    }
}

/// Whether a key may speak at all.
pub(crate) type MaySpeak = Arc<dyn Fn(Digest) -> bool + Send + Sync>;

/// What a key ends a handshake with that may not speak.
pub(crate) const UNKNOWN_KEY: Error = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

/// Lets through the keys that `may_speak` knows.
struct Keys {
    may_speak: MaySpeak,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        // auth: member-key, coordinator-pin
        match (self.may_speak)(Digest::of(key)) {
            true => Ok(()),
            false => Err(UNKNOWN_KEY),
        }
    }

    fn signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // auth: member-signature, coordinator-signature
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for Keys {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Keys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn keys(may_speak: MaySpeak) -> Arc<Keys> {
    Arc::new(Keys { may_speak, provider: Arc::new(rustls::crypto::ring::default_provider()) })
}

/// How the coordinator listens.
pub(crate) fn server(identity: &Identity, may_speak: MaySpeak) -> Result<Arc<ServerConfig>, Error> {
    let keys = keys(may_speak);
    let config = ServerConfig::builder_with_provider(Arc::clone(&keys.provider)).with_protocol_versions(&[&TLS13])?;
    let own = Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.key()));
    let mut config = config.with_client_cert_verifier(keys).with_cert_resolver(own);
    // Every connection proves its key anew.
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.alpn_protocols = Purpose::ALL.map(|purpose| purpose.name().to_vec()).to_vec();
    Ok(Arc::new(config))
}

/// How a worker connects to a coordinator with one of the keys that may speak.
pub(crate) fn client(identity: &Identity, may_speak: MaySpeak, purpose: Purpose) -> Result<Arc<ClientConfig>, Error> {
    let keys = keys(may_speak);
    let config = ClientConfig::builder_with_provider(Arc::clone(&keys.provider)).with_protocol_versions(&[&TLS13])?;
    let own = Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.key()));
    let mut config = config.dangerous().with_custom_certificate_verifier(keys).with_client_cert_resolver(own);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![purpose.name().to_vec()];
    Ok(Arc::new(config))
}
