//! What gives tokens: an issuer with a key of its own, and an endpoint that a client asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificates::{Certificate, openssl};
use super::{eventually, must_run};

/// The client's name and secret at the endpoint. What a form encodes is in both.
pub(crate) const CLIENT: (&str, &str) = ("relay:1", "geheim & süß");

/// Whom the tokens are for, and who signs them.
pub(crate) const AUDIENCE: &str = "kafka";
pub(crate) const ISSUER: &str = "https://issuer.test";

/// Signs tokens with a key in a folder of its own.
#[derive(Clone)]
pub(crate) struct Issuer {
    dir: PathBuf,
}

impl Issuer {
    #[track_caller]
    pub(crate) fn new(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let issuer = Self { dir: dir.to_owned() };
        openssl(&[
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out",
            issuer.file("key.pem").to_str().unwrap(),
        ]);
        issuer
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The public key, as a broker reads it (RFC 7517).
    pub(crate) fn keys(&self) -> String {
        let key = self.file("key.pem");
        let text = must_run(Command::new("openssl").args(["rsa", "-noout", "-modulus", "-in"]).arg(key));
        let digits = text.strip_prefix("Modulus=").unwrap().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let modulus: Vec<u8> = digits.chunks(2).map(byte).collect();
        let n = URL_SAFE_NO_PAD.encode(modulus);
        format!(r#"{{"keys":[{{"kty":"RSA","kid":"one","use":"sig","alg":"RS256","n":"{n}","e":"AQAB"}}]}}"#)
    }

    /// A token for an audience that holds for some seconds.
    pub(crate) fn token(&self, audience: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let header = r#"{"alg":"RS256","typ":"JWT","kid":"one"}"#;
        let claims = format!(
            r#"{{"iss":"{ISSUER}","aud":"{audience}","sub":"relay","scope":"events","iat":{now},"exp":{}}}"#,
            now + seconds
        );
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mut sign = Command::new("openssl");
        sign.args(["dgst", "-sha256", "-sign"]).arg(self.file("key.pem"));
        sign.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = sign.spawn().unwrap();
        child.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(output.stdout))
    }
}

/// What the endpoint answers to the right credentials.
#[derive(Clone)]
pub(crate) enum Answer {
    /// A token of this issuer for this audience, with its life in seconds.
    Token(Issuer, &'static str, u64),
    /// Status and body.
    Other(u16, &'static str),
}

struct State {
    answer: Mutex<Answer>,
    asked: AtomicUsize,
    is_over: AtomicBool,
}

/// An endpoint over HTTP or HTTPS. It ends when dropped.
pub(crate) struct TokenEndpoint {
    address: SocketAddr,
    scheme: &'static str,
    state: Arc<State>,
}

impl TokenEndpoint {
    /// Starts one at `address`; port 0 takes any. With a certificate it speaks TLS.
    #[track_caller]
    pub(crate) fn start(address: SocketAddr, certificate: Option<&Certificate>, answer: Answer) -> Self {
        let listener = eventually("the address is free", 10, || TcpListener::bind(address).ok());
        let address = listener.local_addr().unwrap();
        let tls = certificate.map(server_config);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (asked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let state = Arc::new(State { answer: Mutex::new(answer), asked, is_over });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                std::thread::spawn(move || match tls {
                    None => serve(&state, stream),
                    Some(tls) => {
                        let connection = rustls::ServerConnection::new(tls).unwrap();
                        serve(&state, rustls::StreamOwned::new(connection, stream));
                    }
                });
            }
        });
        Self { address, scheme, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/realms/test/token", self.scheme, self.address)
    }

    /// How many tokens it was asked for.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, answer: Answer) {
        *self.state.answer.lock().unwrap() = answer;
    }
}

impl Drop for TokenEndpoint {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn server_config(certificate: &Certificate) -> Arc<rustls::ServerConfig> {
    let chain = CertificateDer::pem_file_iter(&certificate.certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// Answers one question as the standard has it: Basic with both parts encoded as in a form, the grant in the body.
fn serve(state: &State, stream: impl Read + Write) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let (mut length, mut login) = (0, String::new());
    if reader.read_line(&mut line).is_err() || line.is_empty() {
        return;
    }
    let is_right_place = line.starts_with("POST /realms/test/token ");
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).is_err() || header.trim().is_empty() {
            break;
        }
        let (name, value) = header.trim().split_once(": ").unwrap();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => login = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    state.asked.fetch_add(1, Ordering::Relaxed);
    let right = format!("Basic {}", STANDARD.encode("relay%3A1:geheim+%26+s%C3%BC%C3%9F"));
    let (status, answer) = if !is_right_place {
        (404, "no".to_owned())
    } else if login != right {
        (401, r#"{"error":"invalid_client","error_description":"who are you?"}"#.to_owned())
    } else if body != b"grant_type=client_credentials&scope=events+all" {
        (400, r#"{"error":"invalid_scope"}"#.to_owned())
    } else {
        match state.answer.lock().unwrap().clone() {
            Answer::Token(issuer, audience, seconds) => {
                let token = issuer.token(audience, seconds);
                (200, format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{seconds}}}"#))
            }
            Answer::Other(status, body) => (status, body.to_owned()),
        }
    };
    let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    let _ = reader.get_mut().write_all(format!("{head}{answer}").as_bytes());
    let _ = reader.get_mut().flush();
}
