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
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig, SignatureScheme,
};

use crate::{Digest, Identity};

/// Whether a key may speak at all.
pub(crate) type MaySpeak = Arc<dyn Fn(Digest) -> bool + Send + Sync>;

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
        match (self.may_speak)(Digest::of(key)) {
            true => Ok(()),
            false => Err(Error::General("the other end's key is not known here".to_owned())),
        }
    }

    fn signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
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
    Ok(Arc::new(config))
}

/// How a worker connects to the coordinator with this key.
pub(crate) fn client(identity: &Identity, coordinator: Digest) -> Result<Arc<ClientConfig>, Error> {
    let keys = keys(Arc::new(move |pin| pin == coordinator));
    let config = ClientConfig::builder_with_provider(Arc::clone(&keys.provider)).with_protocol_versions(&[&TLS13])?;
    let own = Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.key()));
    let mut config = config.dangerous().with_custom_certificate_verifier(keys).with_client_cert_resolver(own);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}
