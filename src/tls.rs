//! TLS towards database servers: what the values of `sslmode` mean (PostgreSQL manual, "SSL Support"), by rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// How a connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server has it; the certificate is not verified.
    Prefer,
    /// TLS; the certificate is not verified.
    Require,
    /// TLS; the certificate comes from a known authority.
    VerifyCa,
    /// TLS; the certificate comes from a known authority and names the host.
    VerifyFull,
}

impl SslMode {
    /// Reads PostgreSQL's word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of authorities cannot be used.
    #[error("could not read certificates from \"{path}\": {reason}")]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system has no usable authorities.
    #[error("found no certificate authority on this system to verify the server with")]
    NoSystemRoots,
    /// rustls refused the settings.
    #[error("could not set up TLS")]
    Rustls(#[from] Error),
}

/// Builds the client's settings for a mode. `roots` is a PEM file of authorities; without it the system's are used.
/// As in libpq, `require` with a file of authorities verifies them as `verify-ca` does.
///
/// # Errors
/// [`TlsError`] if the authorities cannot be read.
pub fn client_config(mode: SslMode, roots: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verify_chain = mode == SslMode::VerifyCa || (mode == SslMode::Require && roots.is_some());
    let config = match mode {
        SslMode::VerifyFull => builder.with_root_certificates(root_store(roots)?).with_no_client_auth(),
        _ => {
            let chain = if verify_chain {
                let store = Arc::new(root_store(roots)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider)).build();
                Some(verifier.map_err(|error| Error::General(error.to_string()))?)
            } else {
                None
            };
            let verifier = Arc::new(LenientVerifier { chain, provider });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

fn root_store(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let Some(path) = file else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if store.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(store) };
    };
    let failed = |reason: String| TlsError::Roots { path: path.to_owned(), reason };
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        store.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if store.is_empty() { Err(failed("no certificate in it".to_owned())) } else { Ok(store) }
}

/// Verifies less than the name of the host: the chain alone, or nothing but that the server holds its key.
#[derive(Debug)]
struct LenientVerifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LenientVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
