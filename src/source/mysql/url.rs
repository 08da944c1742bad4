//! The connection URL: `mysql://user:password@host:port/database?sslmode=verify-full`. The words for TLS are those of
//! PostgreSQL's URLs, so that one set of words is enough.

use std::path::PathBuf;

use crate::config::secret::Secret;
use crate::tls::{Identity, SslMode, TlsSettings};

/// The URL cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("option \"source.{kind}.url\": {problem}")]
pub struct UrlError {
    kind: &'static str,
    problem: String,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// All that a URL says.
#[derive(Debug)]
pub(super) struct ParsedUrl {
    pub address: Address,
    pub user: String,
    pub password: Option<Secret>,
    /// The database whose table `outbox` is meant where none is named.
    pub database: Option<String>,
    pub tls: TlsSettings,
}

/// Reads a URL.
///
/// # Errors
/// [`UrlError`] names the part that is wrong and never shows the password.
pub(super) fn parse(url: &str, kind: &'static str) -> Result<ParsedUrl, UrlError> {
    read(url).map_err(|problem| UrlError { kind, problem })
}

fn read(url: &str) -> Result<ParsedUrl, String> {
    let (_, rest) = url.split_once("://").ok_or_else(|| "it has no scheme".to_owned())?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').ok_or_else(|| "it names no user".to_owned())?;
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let user = decode(user).ok_or("its user has a % that is not followed by two hexadecimal digits")?;
    if user.is_empty() {
        return Err("it names no user".to_owned());
    }
    let wrong = "its password has a % that is not followed by two hexadecimal digits";
    let password = password.map(|text| decode(text).ok_or(wrong)).transpose()?.map(Secret::new);
    let database = decode(path).ok_or("its database has a % that is not followed by two hexadecimal digits")?;
    let (mut socket, mut tls) = (None, Tls::default());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("its parameter \"{pair}\" has no value"))?;
        let value = decode(value).ok_or_else(|| format!("its parameter \"{key}\" has a % that is no escape"))?;
        match key {
            "socket" => socket = Some(PathBuf::from(value)),
            "sslmode" => {
                let words = "disable, prefer, require, verify-ca or verify-full";
                let mode = SslMode::parse(&value);
                tls.mode = Some(mode.ok_or_else(|| format!("sslmode \"{value}\" is not one of {words}"))?);
            }
            "sslrootcert" => tls.roots = Some(value.into()),
            "sslcert" => tls.certificate = Some(value.into()),
            "sslkey" => tls.key = Some(value.into()),
            _ => {
                let known = "socket, sslmode, sslrootcert, sslcert, sslkey";
                return Err(format!("its parameter \"{}\" is not known: {known} are", key.escape_debug()));
            }
        }
    }
    let address = match socket {
        Some(path) => Address::Unix(path),
        None => tcp(place)?,
    };
    Ok(ParsedUrl {
        address,
        user,
        password,
        database: Some(database).filter(|name| !name.is_empty()),
        tls: tls.settings()?,
    })
}

fn tcp(place: &str) -> Result<Address, String> {
    const PORT: u16 = 3306;
    let number = |text: &str| {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        port.ok_or_else(|| format!("\"{}\" is no port", text.escape_debug()))
    };
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| "its address has no closing bracket".to_owned())?;
        (host, rest.strip_prefix(':').map(number).transpose()?)
    } else {
        match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(number(port)?)),
            None => (place, None),
        }
    };
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    if host.contains(',') {
        return Err("it names several hosts, and one is read from".to_owned());
    }
    Ok(Address::Tcp { host: host.to_owned(), port: port.unwrap_or(PORT) })
}

/// What the parameters say about TLS.
#[derive(Debug, Default)]
struct Tls {
    mode: Option<SslMode>,
    roots: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Tls {
    fn settings(self) -> Result<TlsSettings, String> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err("sslcert needs the file of its key: sslkey".to_owned()),
            (None, Some(_)) => return Err("sslkey needs the file of its certificate: sslcert".to_owned()),
        };
        let mut tls = TlsSettings { mode: self.mode.unwrap_or_default(), roots: self.roots, identity };
        if tls.roots.as_ref().is_some_and(|roots| roots.as_os_str() == "system") {
            tls.roots = None;
            match self.mode {
                None | Some(SslMode::VerifyFull) => tls.mode = SslMode::VerifyFull,
                // anybody can have a certificate of a public authority
                Some(_) => return Err("sslrootcert=system needs sslmode=verify-full".to_owned()),
            }
        }
        Ok(tls)
    }
}

/// Puts characters in the place of their escapes.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit()? << 4 | digit()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(url: &str) -> String {
        parse(url, "mysql").unwrap_err().to_string()
    }

    #[test]
    fn every_part_is_read() {
        let url =
            parse("mysql://app%40x:p%3Aw@[::1]:3307/shop%20a?sslmode=verify-ca&sslrootcert=/ca.pem", "mysql").unwrap();
        assert_eq!((url.address.to_string().as_str(), url.user.as_str()), ("[::1]:3307", "app@x"));
        assert_eq!((url.password.unwrap().expose(), url.database.as_deref()), ("p:w", Some("shop a")));
        assert_eq!((url.tls.mode, url.tls.roots), (SslMode::VerifyCa, Some("/ca.pem".into())));
        let url = parse("mariadb://u@h", "mariadb").unwrap();
        assert_eq!((url.address.to_string().as_str(), url.database, url.tls.mode), ("h:3306", None, SslMode::Prefer));
        let url = parse("mysql://u@/d?socket=/run/mysqld.sock", "mysql").unwrap();
        assert_eq!(url.address, Address::Unix("/run/mysqld.sock".into()));
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (url, words) in [
            ("mysql://h/d", "names no user"),
            ("mysql://u:hunter2@h:x/d", "\"x\" is no port"),
            ("mysql://u:hunter2@/d", "names no host"),
            ("mysql://u:%zz@h/d", "password has a %"),
            ("mysql://u:hunter2@a,b/d", "several hosts"),
            ("mysql://u:hunter2@h/d?sslmode=on", "sslmode \"on\" is not one of"),
            ("mysql://u:hunter2@h/d?ssl-mode=REQUIRED", "\"ssl-mode\" is not known"),
            ("mysql://u:hunter2@h/d?sslcert=a", "needs the file of its key"),
            ("mysql://u:hunter2@h/d?sslmode=require&sslrootcert=system", "needs sslmode=verify-full"),
        ] {
            let problem = problem(url);
            assert!(problem.contains(words) && !problem.contains("hunter2"), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(mysql://)?.*") {
            let _ = parse(&text, "mysql");
        }
    }
}
