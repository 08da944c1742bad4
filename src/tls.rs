//! TLS towards database servers: what the values of `sslmode` mean (PostgreSQL manual, "SSL Support"), by rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::{SHA256, SHA384, SHA512, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

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

/// Files of our own certificate, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, with those between it and the authority's.
    pub certificate: PathBuf,
    /// Its key: PKCS#8, PKCS#1 or SEC 1, without a passphrase.
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
        builder.dangerous().with_custom_certificate_verifier(Arc::new(LenientVerifier { chain, provider }))
    };
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            builder.with_client_auth_cert(certificates(certificate)?, private_key(key)?)?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File { what: "certificates", path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(|items| items.collect::<Result<Vec<_>, _>>());
    let certificates = read.map_err(|error| failed(words(&error)))?;
    if certificates.is_empty() { Err(failed("no certificate in it".to_owned())) } else { Ok(certificates) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let reason = match error {
            pem::Error::NoItemsFound => "no key in it that has no passphrase".to_owned(),
            error => words(&error),
        };
        TlsError::File { what: "the client's key", path: path.to_owned(), reason }
    })
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
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The data that bind a login to the TLS connection (RFC 5929, `tls-server-end-point`): the hash of the server's
/// certificate by the algorithm of its signature, or by SHA-256 in place of MD5 and SHA-1. `None` where the signature
/// does not tell one hash by its name.
#[must_use]
pub fn server_end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let identifier = signature_algorithm(certificate)?;
    let algorithm = if let Some(which) = identifier.strip_prefix(RSA) {
        match which {
            [4 | 5 | 11] => &SHA256,
            [12] => &SHA384,
            [13] => &SHA512,
            _ => return None,
        }
    } else {
        match identifier.strip_prefix(ECDSA)? {
            [1] | [3, 2] => &SHA256,
            [3, 3] => &SHA384,
            [3, 4] => &SHA512,
            _ => return None,
        }
    };
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// The object identifier of a certificate's signature (RFC 5280, section 4.1).
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (fields, _) = der(SEQUENCE, certificate)?;
    let (_signed, rest) = der(SEQUENCE, fields)?;
    let (algorithm, _signature) = der(SEQUENCE, rest)?;
    der(OBJECT_IDENTIFIER, algorithm).map(|(identifier, _parameters)| identifier)
}

/// Content of the first value in DER, if it has this tag, and what follows it.
fn der(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    if *first != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            if digits.len() > 4 {
                return None;
            }
            (digits.iter().fold(0, |length: usize, digit| (length << 8) | usize::from(*digit)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame of a certificate with the given identifier.
    fn certificate(identifier: &[u8]) -> CertificateDer<'static> {
        let value = |tag: u8, content: &[u8]| {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[tag, 0x82][..], &length, content].concat()
        };
        let algorithm = value(0x30, &value(0x06, identifier));
        let signed = value(0x30, &[1; 300]);
        value(0x30, &[signed, algorithm, vec![3, 1, 0]].concat()).into()
    }

    #[test]
    fn the_signature_chooses_the_hash() {
        let rsa = |last: u8| certificate(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last]);
        for (last, bytes) in [(4, Some(32)), (5, Some(32)), (11, Some(32)), (12, Some(48)), (13, Some(64)), (10, None)]
        {
            assert_eq!(server_end_point(&rsa(last)).map(|hash| hash.len()), bytes, "{last}");
        }
        let ecdsa = certificate(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 3, 3]);
        assert_eq!(server_end_point(&ecdsa).map(|hash| hash.len()), Some(48));
        let ed25519 = certificate(&[0x2b, 0x65, 0x70]);
        assert_eq!(server_end_point(&ed25519), None);
        for length in 0..ecdsa.len() - 3 {
            assert_eq!(server_end_point(&ecdsa[..length].to_vec().into()), None, "{length}");
        }
    }
}
