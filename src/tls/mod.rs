//! TLS towards database servers: what the values of `sslmode` mean (PostgreSQL manual, "SSL Support"), by rustls.

mod certificate;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore, SignatureScheme,
};

pub use certificate::server_end_point;

/// How a connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server has it; the certificate is not verified.
    #[default]
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

/// All that is set about the protection of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// What is asked of it.
    pub mode: SslMode,
    /// PEM file of certificate authorities; without it the system's are used.
    pub roots: Option<PathBuf>,
    /// Our own certificate.
    pub identity: Option<Identity>,
}

/// Files of our own certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, with those between it and the authority's.
    pub certificate: PathBuf,
    /// Its key, in PEM or DER: PKCS#8, PKCS#1 or SEC 1, without a passphrase.
    pub key: PathBuf,
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("could not read {what} from \"{path}\": {reason}")]
    File {
        /// What should be in it.
        what: &'static str,
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

/// Builds the client's settings; reads the files. As in libpq, `require` with a file of authorities verifies them as
/// `verify-ca` does.
///
/// # Errors
/// [`TlsError`] if a file cannot be read.
pub fn client_config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let TlsSettings { mode, roots, identity } = settings;
    let roots = roots.as_deref();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verify_chain = *mode == SslMode::VerifyCa || (*mode == SslMode::Require && roots.is_some());
    let builder = if *mode == SslMode::VerifyFull {
        builder.with_root_certificates(root_store(roots)?)
    } else {
        let chain = if verify_chain {
            let store = Arc::new(root_store(roots)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider)).build();
            Some(verifier.map_err(|error| Error::General(error.to_string()))?)
        } else {
            None
        };
        let verifier = Arc::new(LenientVerifier { chain, provider: Arc::clone(&provider) });
        builder.dangerous().with_custom_certificate_verifier(verifier)
    };
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_cert_resolver(Arc::new(certified_key(identity, &provider)?)),
    };
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File { what: "certificates", path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(|items| items.collect::<Result<Vec<_>, _>>());
    let certificates = read.map_err(|error| failed(words(&error)))?;
    if certificates.is_empty() { Err(failed("no certificate in it".to_owned())) } else { Ok(certificates) }
}

/// Our own certificate with its key. rustls' short way refuses certificates of X.509 version 1, such as those that the
/// PostgreSQL manual's commands make; the server takes them.
fn certified_key(identity: &Identity, provider: &CryptoProvider) -> Result<SingleCertAndKey, TlsError> {
    let key = provider.key_provider.load_private_key(private_key(&identity.key)?)?;
    let certified = CertifiedKey::new(certificates(&identity.certificate)?, key);
    match certified.keys_match() {
        Err(error @ Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(TlsError::File {
            what: "the client's key",
            path: identity.key.clone(),
            reason: format!("it is not the key of \"{}\": {error}", identity.certificate.display()),
        }),
        _ => Ok(SingleCertAndKey::from(certified)),
    }
}

/// PEM, or the bare DER that Java's driver takes.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed = |reason: String| TlsError::File { what: "the client's key", path: path.to_owned(), reason };
    let content = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    match PrivateKeyDer::from_pem_slice(&content) {
        Err(pem::Error::NoItemsFound) => {
            PrivateKeyDer::try_from(content).map_err(|_| failed("no key in it that has no passphrase".to_owned()))
        }
        read => read.map_err(|error| failed(words(&error))),
    }
}

/// The system's words where there are some: the library's show its own types.
fn words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn root_store(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let Some(path) = file else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if store.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(store) };
    };
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| TlsError::File {
            what: "certificates",
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(store)
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
        let algorithms = &self.provider.signature_verification_algorithms;
        match certificate::version_1_public_key(certificate) {
            // rustls does not read these; where nothing is verified but the key, the key is enough
            Some(key) if self.chain.is_none() => {
                verify_tls13_signature_with_raw_key(message, &key.into(), signature, algorithms)
            }
            _ => verify_tls13_signature(message, certificate, signature, algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
