//! TLS: reads certificate and private key.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::ServerError;
use crate::options::TlsFiles;

/// Accepts TLS connections with this certificate.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServerError> {
    let certificate_error = |error: &dyn std::fmt::Display| failure("the certificate", &files.certificate, error);
    let certificates = CertificateDer::pem_file_iter(&files.certificate).map_err(|error| certificate_error(&error))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| certificate_error(&error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| failure("the private key", &files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| certificate_error(&error))?;
    let config = config.with_no_client_auth().with_single_cert(certificates, key);
    let mut config = config.map_err(|error| certificate_error(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn failure(what: &'static str, path: &Path, error: &dyn std::fmt::Display) -> ServerError {
    let problem = format!("{error}; give PEM files that belong together");
    ServerError::File { what, path: path.to_path_buf(), problem }
}
