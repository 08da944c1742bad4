//! What rustls does not tell about a certificate, read from its DER (RFC 5280, section 4.1).

use ring::digest::{SHA256, SHA384, SHA512, digest};
use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;

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

/// The object identifier of a certificate's signature.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (fields, _) = der(SEQUENCE, certificate)?;
    let (_signed, rest) = der(SEQUENCE, fields)?;
    let (algorithm, _signature) = der(SEQUENCE, rest)?;
    der(OBJECT_IDENTIFIER, algorithm).map(|(identifier, _parameters)| identifier)
}

/// The public key of a certificate of X.509 version 1, with its algorithm: a whole SubjectPublicKeyInfo. `None` for the
/// later versions, which begin with their number.
pub(super) fn version_1_public_key<'a>(certificate: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    let (fields, _) = der(SEQUENCE, certificate)?;
    let (signed, _) = der(SEQUENCE, fields)?;
    let (_serial, mut rest) = der(INTEGER, signed)?;
    for _signature_issuer_validity_subject in 0..4 {
        (_, rest) = der(SEQUENCE, rest)?;
    }
    let (_, behind) = der(SEQUENCE, rest)?;
    rest.get(..rest.len() - behind.len())
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
        let key = value(0x30, &[7; 10]);
        let parts = [value(0x30, &[]), value(0x30, &[1; 300]), value(0x30, &[]), value(0x30, &[]), key, vec![9; 5]];
        let signed = value(0x30, &[vec![2, 1, 1], parts.concat()].concat());
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

    #[test]
    fn finds_the_key_of_version_1() {
        let version_1 = certificate(&[1]);
        let key = [&[0x30, 0x82, 0, 10][..], &[7; 10]].concat();
        assert_eq!(version_1_public_key(&version_1), Some(key.as_slice()));
        let mut later = version_1.to_vec();
        later[8] = 0xa0;
        assert_eq!(version_1_public_key(&later.into()), None);
    }
}
