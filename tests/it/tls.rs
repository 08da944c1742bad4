//! TLS to the database: what each `sslmode` checks.

use std::path::PathBuf;

use crate::support::{Case, Config, Outboxd, Server, Version, eventually};

on_each_version!(
    require_encrypts,
    verify_ca_checks_the_issuer,
    verify_full_checks_the_name,
    wrong_ca_is_refused,
    wrong_host_name_is_refused
);

fn ca(version: Version) -> PathBuf {
    Server::shared(version).dir.join("tls/ca.pem")
}

/// The test server's certificate is for the name "localhost", not for its address.
fn config(case: &Case, host: &str, mode: &str, ca: Option<PathBuf>) -> Config {
    let root = ca.map(|path| format!("&sslrootcert={}", path.display())).unwrap_or_default();
    let url = format!("postgres://postgres@{host}:{}/{}?sslmode={mode}{root}", case.db.server.port, case.tag);
    case.config().set("source.postgres.url", url)
}

/// Publishes an event over a connection that must be encrypted.
#[track_caller]
fn works(case: &Case, config: &Config) {
    let relay = Outboxd::start(config);
    relay.ready();
    case.insert("A", "1", "p");
    case.consume("A", 1, 20);
    let encrypted = case.db.rows(&format!(
        "SELECT ssl, version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE datname = '{}' AND pid <> pg_backend_pid()",
        case.tag
    ));
    assert!(!encrypted.is_empty());
    assert!(encrypted.iter().all(|row| row[0].as_deref() == Some("t")), "not all are encrypted: {encrypted:?}");
    assert_eq!(relay.terminate(), Some(0));
}

/// The relay either ends with code 2 or stays red; it never streams, and it speaks of the certificate.
#[track_caller]
fn refuses(config: &Config) {
    let mut relay = Outboxd::start(config);
    let said = eventually("it says what is wrong", 15, || {
        if !relay.is_running() {
            let ended = relay.end(1);
            assert_eq!(ended.code, Some(2), "{}", ended.stderr);
            return Some(ended.stderr);
        }
        let health = relay.health()?;
        assert_ne!(health.status, 200, "it works: {health:?}");
        (health.reason() != "starting").then(|| health.detail().to_owned())
    });
    assert!(said.to_lowercase().contains("certificate"), "{said}");
}

/// Proves that `require` encrypts every connection, without a CA.
fn require_encrypts(version: Version) {
    let case = Case::new(version);
    works(&case, &config(&case, "127.0.0.1", "require", None));
}

/// Proves that `verify-ca` takes a certificate of the CA whatever its name.
fn verify_ca_checks_the_issuer(version: Version) {
    let case = Case::new(version);
    works(&case, &config(&case, "127.0.0.1", "verify-ca", Some(ca(version))));
}

/// Proves that `verify-full` takes the certificate under its name.
fn verify_full_checks_the_name(version: Version) {
    let case = Case::new(version);
    works(&case, &config(&case, "localhost", "verify-full", Some(ca(version))));
}

/// Proves that a certificate of another CA is refused by both verifying modes, and without any CA file too.
fn wrong_ca_is_refused(version: Version) {
    let case = Case::new(version);
    let other = if version == Version::V15 { Version::V18 } else { Version::V15 };
    refuses(&config(&case, "localhost", "verify-ca", Some(ca(other))));
    refuses(&config(&case, "localhost", "verify-full", Some(ca(other))));
    refuses(&config(&case, "localhost", "verify-full", None));
}

/// Proves that the right CA does not make up for the wrong name.
fn wrong_host_name_is_refused(version: Version) {
    let case = Case::new(version);
    refuses(&config(&case, "127.0.0.1", "verify-full", Some(ca(version))));
}
