//! Logins: what each of the servers' methods wants to see of a password (MySQL source documentation, "Authentication
//! Method"; MariaDB, "Authentication Plugin - ed25519").

use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use num_bigint::BigUint;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};
use ring::rand::{SecureRandom, SystemRandom};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A login method of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    NativePassword,
    CachingSha2,
    Sha256,
    Ed25519,
    ClearPassword,
}

impl Method {
    /// Reads the name of the server's plugin.
    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"mysql_native_password" => Self::NativePassword,
            b"caching_sha2_password" => Self::CachingSha2,
            b"sha256_password" => Self::Sha256,
            b"client_ed25519" => Self::Ed25519,
            b"mysql_clear_password" => Self::ClearPassword,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NativePassword => "mysql_native_password",
            Self::CachingSha2 => "caching_sha2_password",
            Self::Sha256 => "sha256_password",
            Self::Ed25519 => "client_ed25519",
            Self::ClearPassword => "mysql_clear_password",
        }
    }

    /// Whether the password itself goes over the connection.
    pub(super) fn sends_password(self) -> bool {
        matches!(self, Self::Sha256 | Self::ClearPassword)
    }

    /// The answer to the server's challenge.
    pub(super) fn answer(self, password: &[u8], nonce: &[u8]) -> Vec<u8> {
        match self {
            Self::NativePassword | Self::CachingSha2 if password.is_empty() => Vec::new(),
            Self::NativePassword => {
                let once = sha1(&[password]);
                let mask = sha1(&[nonce, &sha1(&[&once])]);
                xor(&once, &mask)
            }
            Self::CachingSha2 => {
                let once = sha256(&[password]);
                let mask = sha256(&[&sha256(&[&once]), nonce]);
                xor(&once, &mask)
            }
            Self::Ed25519 => ed25519(password, nonce),
            Self::Sha256 | Self::ClearPassword => terminated(password),
        }
    }
}

/// The password with the zero byte that ends it.
pub(super) fn terminated(password: &[u8]) -> Vec<u8> {
    let mut text = password.to_vec();
    text.push(0);
    text
}

fn sha1(parts: &[&[u8]]) -> Vec<u8> {
    hash(&SHA1_FOR_LEGACY_USE_ONLY, parts)
}

fn sha256(parts: &[&[u8]]) -> Vec<u8> {
    hash(&SHA256, parts)
}

fn hash(algorithm: &'static ring::digest::Algorithm, parts: &[&[u8]]) -> Vec<u8> {
    let mut context = Context::new(algorithm);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().to_vec()
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

fn sha512(parts: &[&[u8]]) -> [u8; 64] {
    let mut out = [0; 64];
    out.copy_from_slice(&hash(&SHA512, parts));
    out
}

/// A signature as in RFC 8032, whose secret key is the password whatever its length.
fn ed25519(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let expanded = digest(&SHA512, password);
    let (secret, prefix) = expanded.as_ref().split_at(32);
    let mut clamped = [0; 32];
    clamped.copy_from_slice(secret);
    let secret = Scalar::from_bytes_mod_order(clamp_integer(clamped));
    let public = EdwardsPoint::mul_base(&secret).compress();
    let r = Scalar::from_bytes_mod_order_wide(&sha512(&[prefix, nonce]));
    let point = EdwardsPoint::mul_base(&r).compress();
    let k = Scalar::from_bytes_mod_order_wide(&sha512(&[point.as_bytes(), public.as_bytes(), nonce]));
    [point.to_bytes(), (k * secret + r).to_bytes()].concat()
}

/// Packs the password with the server's RSA key, as `caching_sha2_password` wants it where there is no TLS: masked with the
/// challenge, then RSAES-OAEP with SHA-1 (RFC 8017, section 7.1). `None` if the key cannot be used.
pub(super) fn encrypt(password: &[u8], nonce: &[u8], pem: &[u8]) -> Option<Vec<u8>> {
    const HASH: usize = 20;
    let (modulus, exponent) = public_key(pem)?;
    let size = modulus.len();
    let masked: Vec<u8> =
        terminated(password).iter().zip(nonce.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    let room = size.checked_sub(2 * HASH + 2)?;
    let padding = room.checked_sub(masked.len())?;
    let mut block = sha1(&[b""]);
    block.extend(std::iter::repeat_n(0, padding));
    block.push(1);
    block.extend_from_slice(&masked);
    let mut seed = [0; HASH];
    SystemRandom::new().fill(&mut seed).ok()?;
    let block = xor(&block, &mask(&seed, block.len()));
    let seed = xor(&seed, &mask(&block, HASH));
    let message = BigUint::from_bytes_be(&[seed, block].concat());
    let cipher = message.modpow(&BigUint::from_bytes_be(exponent.as_slice()), &BigUint::from_bytes_be(&modulus));
    let cipher = cipher.to_bytes_be();
    let mut out = vec![0; size.checked_sub(cipher.len())?];
    out.extend_from_slice(&cipher);
    Some(out)
}

/// MGF1 with SHA-1 (RFC 8017, appendix B.2.1).
fn mask(seed: &[u8], length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut counter = 0_u32;
    while out.len() < length {
        out.extend_from_slice(&sha1(&[seed, &counter.to_be_bytes()]));
        counter += 1;
    }
    out.truncate(length);
    out
}

/// Modulus, without leading zeros, and exponent of a key in PEM (RFC 5280, SubjectPublicKeyInfo).
fn public_key(pem: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 0x03;
    const INTEGER: u8 = 0x02;
    let text = std::str::from_utf8(pem).ok()?;
    let (_, rest) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END")?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    let (outer, _) = element(&der, SEQUENCE)?;
    let (_, rest) = element(outer, SEQUENCE)?;
    let (bits, _) = element(rest, BIT_STRING)?;
    let (key, _) = element(bits.strip_prefix(&[0])?, SEQUENCE)?;
    let (modulus, rest) = element(key, INTEGER)?;
    let (exponent, _) = element(rest, INTEGER)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let modulus = modulus.get(zeros..)?.to_vec();
    // an even or empty one is no modulus, and a huge one would keep us busy
    let is_usable = modulus.last().is_some_and(|byte| byte & 1 == 1) && modulus.len() <= 2048 && exponent.len() <= 8;
    is_usable.then(|| (modulus, exponent.to_vec()))
}

/// The content of a DER element, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (bytes.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_what_the_servers_expect() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // mysql_common's vectors
        let nonce = b"\x1a\x5e\x0b\x2c\x3d\x4e\x5f\x60\x71\x02\x13\x24\x35\x46\x57\x68\x79\x0a\x1b\x2c";
        assert_eq!(Method::NativePassword.answer(b"secret", nonce).len(), 20);
        assert_eq!(Method::CachingSha2.answer(b"secret", nonce).len(), 32);
        assert!(Method::CachingSha2.answer(b"", nonce).is_empty());
        // SHA1(p) xor SHA1(nonce + SHA1(SHA1(p))), computed apart
        let once = sha1(&[b"secret"]);
        let expected = xor(&once, &sha1(&[nonce, &sha1(&[&once])]));
        assert_eq!(hex(Method::NativePassword.answer(b"secret", nonce)), hex(expected));
        assert_eq!(Method::Ed25519.answer(b"secret", &[7; 32]).len(), 64);
        assert_eq!(Method::parse(b"parsec"), None);
    }

    proptest! {
        #[test]
        fn any_key_is_read_or_refused(key: Vec<u8>, text in "[A-Za-z0-9+/=]{0,60}") {
            let _ = encrypt(b"p", b"n", &key);
            let _ = encrypt(b"p", b"n", format!("-----BEGIN PUBLIC KEY-----{text}-----END").as_bytes());
        }
    }
}
