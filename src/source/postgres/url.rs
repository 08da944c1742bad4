//! The connection URL (PostgreSQL manual, "Connection URIs" and "Parameter Key Words").
//!
//! What the driver's parser does not know, or knows otherwise, is taken out of the query first: protection, channel
//! binding, the choice among several hosts. Hosts, ports, user and database are the driver's to parse.

use std::path::PathBuf;
use std::str::FromStr;

use tokio_postgres::config::Host;

use super::address::{Address, SessionKind};
use crate::config::secret::Secret;
use crate::tls::{Identity, SslMode, TlsSettings};

/// The URL cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("option \"source.postgres.url\": {0}")]
pub struct UrlError(String);

/// Whether the login has to be bound to the TLS connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server can.
    #[default]
    Prefer,
    /// The server must prove that TLS ends with it.
    Require,
}

/// All that a URL says.
#[derive(Debug)]
pub(super) struct ParsedUrl {
    pub addresses: Vec<Address>,
    pub user: String,
    pub database: String,
    pub password: Option<Secret>,
    pub target: SessionKind,
    pub tls: TlsSettings,
    pub channel_binding: ChannelBinding,
    pub passfile: Option<PathBuf>,
}

/// Parameters that the driver's parser takes and that would have no effect here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("application_name", "it is set by the relay"),
    ("connect_timeout", "set option \"source.postgres.connect-timeout\""),
    ("hostaddr", "name the address as the host"),
    ("keepalives", "silence is bounded by option \"source.postgres.silence-timeout\""),
    ("keepalives_idle", "silence is bounded by option \"source.postgres.silence-timeout\""),
    ("keepalives_interval", "silence is bounded by option \"source.postgres.silence-timeout\""),
    ("keepalives_retries", "silence is bounded by option \"source.postgres.silence-timeout\""),
    ("tcp_user_timeout", "silence is bounded by option \"source.postgres.silence-timeout\""),
    ("load_balance_hosts", "hosts are tried in their order"),
    ("options", "the session's settings are the relay's"),
    ("sslnegotiation", "TLS is asked for in PostgreSQL's way"),
    ("sslpassword", "keys with a passphrase are not available: name a file with the plain key as sslkey"),
];

/// Reads a URL.
///
/// # Errors
/// [`UrlError`] names the part that is wrong and never shows the password.
pub(super) fn parse(url: &str) -> Result<ParsedUrl, UrlError> {
    let (url, own) = split(url)?;
    // the driver's message names the key and not its value, so no password can be in it
    let parsed = tokio_postgres::Config::from_str(&url)
        .map_err(|error| UrlError(format!("it cannot be read: {}", crate::chain(&error))))?;
    let addresses = addresses(&parsed)?;
    let user =
        parsed.get_user().filter(|user| !user.is_empty()).ok_or_else(|| UrlError("it names no user".to_owned()))?;
    // with several hosts, one that has become a standby must not be taken for a server that lost our slot
    let usual = if addresses.len() > 1 { SessionKind::Primary } else { SessionKind::Any };
    Ok(ParsedUrl {
        user: user.to_owned(),
        database: parsed.get_dbname().unwrap_or(user).to_owned(),
        password: parsed.get_password().map(|bytes| Secret::new(String::from_utf8_lossy(bytes))),
        target: own.target.unwrap_or(usual),
        tls: own.tls()?,
        channel_binding: own.channel_binding.unwrap_or_default(),
        passfile: own.passfile,
        addresses,
    })
}

/// The parameters that are taken out of the query.
#[derive(Debug, Default)]
struct Own {
    mode: Option<SslMode>,
    roots: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    channel_binding: Option<ChannelBinding>,
    target: Option<SessionKind>,
    passfile: Option<PathBuf>,
}

impl Own {
    fn tls(&self) -> Result<TlsSettings, UrlError> {
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate: certificate.clone(), key: key.clone() }),
            (None, None) => None,
            (Some(_), None) => return Err(UrlError("sslcert needs the file of its key: sslkey".to_owned())),
            (None, Some(_)) => return Err(UrlError("sslkey needs the file of its certificate: sslcert".to_owned())),
        };
        let mut tls = TlsSettings { mode: self.mode.unwrap_or_default(), roots: self.roots.clone(), identity };
        if tls.roots.as_ref().is_some_and(|roots| roots.as_os_str() == "system") {
            tls.roots = None;
            match self.mode {
                None | Some(SslMode::VerifyFull) => tls.mode = SslMode::VerifyFull,
                // anybody can have a certificate of a public authority
                Some(_) => return Err(UrlError("sslrootcert=system needs sslmode=verify-full".to_owned())),
            }
        }
        Ok(tls)
    }

    /// Takes a parameter; false if it is not one of these.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, UrlError> {
        let path = || percent_decode(value).map(PathBuf::from);
        let unknown = |words: &str| UrlError(format!("unknown {key} \"{value}\": expected {words}"));
        match key {
            "sslmode" => {
                let words = "disable, prefer, require, verify-ca or verify-full";
                self.mode = Some(SslMode::parse(value).ok_or_else(|| unknown(words))?);
            }
            "sslrootcert" => self.roots = Some(path()?),
            "sslcert" => self.certificate = Some(path()?),
            "sslkey" => self.key = Some(path()?),
            "passfile" => self.passfile = Some(path()?),
            "channel_binding" => {
                self.channel_binding = Some(match value {
                    "disable" => ChannelBinding::Disable,
                    "prefer" => ChannelBinding::Prefer,
                    "require" => ChannelBinding::Require,
                    _ => return Err(unknown("disable, prefer or require")),
                });
            }
            "target_session_attrs" => {
                let words = "any, read-write, read-only, primary, standby or prefer-standby";
                self.target = Some(SessionKind::parse(value).ok_or_else(|| unknown(words))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Takes our own parameters out of the URL.
fn split(url: &str) -> Result<(String, Own), UrlError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut own, mut rest) = (Own::default(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let Some((_, instead)) = WITHOUT_EFFECT.iter().find(|(name, _)| *name == key) {
            return Err(UrlError(format!("\"{key}\" cannot be set in it: {instead}")));
        }
        if !own.take(key, value)? {
            rest.push(pair);
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, own))
}

/// Hosts and ports, paired as libpq does: one port for all, or one for each.
fn addresses(parsed: &tokio_postgres::Config) -> Result<Vec<Address>, UrlError> {
    let mut hosts = Vec::new();
    for host in parsed.get_hosts() {
        // in the parameter "host" the driver's parser leaves the commas standing
        match host {
            Host::Tcp(names) => hosts.extend(names.split(',').map(str::to_owned)),
            #[cfg(unix)]
            Host::Unix(paths) => hosts.extend(paths.to_string_lossy().split(',').map(str::to_owned)),
        }
    }
    if hosts.is_empty() || hosts.iter().any(String::is_empty) {
        return Err(UrlError("it names no host".to_owned()));
    }
    let ports = match parsed.get_ports() {
        [] => vec![5432; hosts.len()],
        [port] => vec![*port; hosts.len()],
        ports if ports.len() == hosts.len() => ports.to_vec(),
        ports => return Err(UrlError(format!("it names {} hosts and {} ports", hosts.len(), ports.len()))),
    };
    Ok(hosts.into_iter().zip(ports).map(|(host, port)| Address::new(host, port)).collect())
}

fn percent_decode(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError("a value has a broken %-escape".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(wrong);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> Vec<String> {
        parse(url).unwrap().addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reads_all_parts() {
        let read = parse(
            "postgres://al%40x:p%2fw@db.internal:6432/shop?sslmode=verify-full&sslrootcert=/a%20b.pem\
             &sslcert=/c.pem&sslkey=/k.pem&channel_binding=require&target_session_attrs=read-write&passfile=/p",
        );
        let read = read.unwrap();
        assert_eq!(read.addresses, [Address::new("db.internal".to_owned(), 6432)]);
        assert_eq!((read.user.as_str(), read.database.as_str()), ("al@x", "shop"));
        assert_eq!(read.password.unwrap().expose(), "p/w");
        assert_eq!(read.tls.mode, SslMode::VerifyFull);
        assert_eq!(read.tls.roots, Some(PathBuf::from("/a b.pem")));
        let identity = Identity { certificate: PathBuf::from("/c.pem"), key: PathBuf::from("/k.pem") };
        assert_eq!(read.tls.identity, Some(identity));
        assert_eq!(read.channel_binding, ChannelBinding::Require);
        assert_eq!(read.target, SessionKind::ReadWrite);
        assert_eq!(read.passfile, Some(PathBuf::from("/p")));
    }

    #[test]
    fn the_database_defaults_to_the_user_and_tls_to_prefer() {
        let read = parse("postgresql://app@localhost").unwrap();
        assert_eq!((read.database.as_str(), read.tls.mode), ("app", SslMode::Prefer));
        assert_eq!(read.channel_binding, ChannelBinding::Prefer);
        assert_eq!(
            (read.target, shown("postgresql://app@localhost")),
            (SessionKind::Any, vec!["localhost:5432".into()])
        );
        assert_eq!(parse("postgres://u@h?sslrootcert=system").unwrap().tls.mode, SslMode::VerifyFull);
    }

    #[test]
    fn reads_several_hosts_and_sockets() {
        assert_eq!(shown("postgres://u@a,b:6000/d"), ["a:5432", "b:6000"]);
        assert_eq!(shown("postgres://u@/d?host=a,b&port=7000"), ["a:7000", "b:7000"]);
        assert_eq!(shown("postgres://u@[::1]:1/d"), ["[::1]:1"]);
        assert_eq!(shown("postgres://u@%2Frun%2Fpg:6000/d"), ["/run/pg/.s.PGSQL.6000"]);
        assert_eq!(shown("postgres://u@/d?host=/run/pg"), ["/run/pg/.s.PGSQL.5432"]);
        assert_eq!(shown("postgres://u@/d?host=/run/pg,b&port=1,2"), ["/run/pg/.s.PGSQL.1", "b:2"]);
        assert_eq!(parse("postgres://u@a,b/d").unwrap().target, SessionKind::Primary);
    }

    #[test]
    fn says_what_is_wrong_without_the_password() {
        for (url, words) in [
            ("postgres://u:geheim@h/d?sslmode=maybe", "unknown sslmode \"maybe\""),
            ("postgres://u:geheim@h/d?channel_binding=1", "unknown channel_binding"),
            ("postgres://u:geheim@h/d?target_session_attrs=leader", "unknown target_session_attrs \"leader\""),
            ("postgres://u:geheim@h/d?sslcert=/c", "sslkey"),
            ("postgres://u:geheim@h/d?sslkey=/c", "sslcert"),
            ("postgres://u:geheim@h/d?sslpassword=geheim", "sslpassword"),
            ("postgres://u:geheim@h/d?connect_timeout=3", "connect-timeout"),
            ("postgres://u:geheim@h/d?sslmode=require&sslrootcert=system", "verify-full"),
            ("postgres://u:geheim@h:99999/d", "cannot be read"),
            ("postgres://u:geheim@h/d?colour=red", "colour"),
            ("postgres://:geheim@h/d", "no user"),
            ("postgres://u:geheim@/d", "no host"),
            ("postgres://u:geheim@a,,b/d", "no host"),
            ("postgres://u:geheim@a,b/d?port=1", "2 hosts and 3 ports"),
            ("mysql://u:geheim@h/d", "cannot be read"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
