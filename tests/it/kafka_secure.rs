//! Logins, certificates and rights at the broker.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::case::without_repeats;
use crate::support::certificates::Authority;
use crate::support::secure::{CERTIFIED, PLAIN_PASSWORD};
use crate::support::{Case, Config, Outboxd, SecureKafka, Server, Version, base_table, eventually, private_dir};

/// A case on the broker, which reads and makes topics as the administrator.
fn case(kafka: &SecureKafka) -> Case {
    let case = Case::on(&Server::shared(Version::V18), kafka);
    case.db.run(&base_table("outbox"));
    case
}

/// A file with a password, as the option wants it.
struct PasswordFile {
    dir: TempDir,
}

impl PasswordFile {
    fn new(text: &str) -> Self {
        let file = Self { dir: tempfile::tempdir().unwrap() };
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("password")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }
}

/// A configuration that logs in over TLS.
fn sasl(case: &Case, kafka: &SecureKafka, mechanism: &str, user: &str, password: &PasswordFile) -> Config {
    kafka
        .trusting(case.config(), "SASL_SSL", &kafka.sasl)
        .set_in("sink.kafka.options", "sasl.mechanism", mechanism)
        .set("sink.kafka.sasl-username", user)
        .set("sink.kafka.sasl-password-file", password.path().to_str().unwrap())
}

/// Publishes an event.
#[track_caller]
fn works(case: &Case, config: &Config) {
    let relay = Outboxd::start(config);
    relay.ready();
    case.insert("A", "1", "arrived");
    assert_eq!(case.consume("A", 1, 20)[0].text(), "arrived");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that PLAIN works, with the mechanism's option by either name, and a password file from Windows.
#[test]
fn plain() {
    let kafka = SecureKafka::shared();
    let case = case(kafka);
    let password = PasswordFile::new(&format!("{PLAIN_PASSWORD}\r\n"));
    works(&case, &sasl(&case, kafka, "PLAIN", "plain", &password));
    let case = self::case(kafka);
    let config = kafka
        .trusting(case.config(), "sasl_ssl", &kafka.sasl)
        .set_in("sink.kafka.options", "sasl.mechanisms", "PLAIN")
        .set("sink.kafka.sasl-username", "plain")
        .set("sink.kafka.sasl-password-file", password.path().to_str().unwrap());
    works(&case, &config);
}

/// Proves that both kinds of SCRAM work.
#[test]
fn scram() {
    let kafka = SecureKafka::shared();
    let password = PasswordFile::new("sécret-1\n");
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        kafka.set_password("scram", mechanism, "sécret-1");
        let case = case(kafka);
        works(&case, &sasl(&case, kafka, mechanism, "scram", &password));
    }
}

/// Proves that a wrong password is a clear state with patient tries, and that the relay goes on by itself once the file
/// is mended.
#[test]
fn wrong_password_is_said_and_mended() {
    let kafka = SecureKafka::shared();
    kafka.set_password("wrong", "SCRAM-SHA-512", "right-secret");
    let case = case(kafka);
    let password = PasswordFile::new("mistaken-secret");
    let relay = Outboxd::start(&sasl(&case, kafka, "SCRAM-SHA-512", "wrong", &password));
    let health = relay.wait_reason("authentication_failed", 10);
    for words in ["refused the login", &kafka.sasl, "SCRAM-SHA-512"] {
        assert!(health.detail().contains(words), "{words:?} is missing: {health:?}");
    }
    let (begin, watched) = (kafka.refused_logins(&kafka.sasl), Instant::now());
    eventually("a few more tries", 20, || (watched.elapsed() >= Duration::from_secs(8)).then_some(()));
    let tries = kafka.refused_logins(&kafka.sasl) - begin;
    assert!(tries <= 30, "{tries} tries in 8 s");
    assert!(!relay.stderr().contains("mistaken-secret"), "the password is in the log");
    password.write("right-secret\n");
    relay.ready();
    case.insert("A", "1", "mended");
    case.consume("A", 1, 20);
}

/// Proves that a password that changes while the relay runs is taken from the file, and that a wrong one in between
/// loses nothing.
#[test]
fn fr_10_password_changes() {
    let kafka = SecureKafka::shared();
    kafka.set_password("rotated", "SCRAM-SHA-512", "first-secret");
    let case = case(kafka);
    let password = PasswordFile::new("first-secret");
    let config = sasl(&case, kafka, "SCRAM-SHA-512", "rotated", &password);
    let relay = Outboxd::start(&config.set("sink.kafka.bootstrap-servers", kafka.short.as_str()));
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    // the login holds for 3 s, then the old password is refused
    kafka.set_password("rotated", "SCRAM-SHA-512", "second-secret");
    relay.wait_reason("authentication_failed", 30);
    case.insert("A", "1", "two");
    password.write("second-secret");
    relay.wait_health("mended", 40, |health| health.status == 200);
    assert_eq!(without_repeats(case.values_until("A", "two", 20)), ["one", "two"]);
}

/// The relay is red and says these words.
#[track_caller]
fn says(config: &Config, words: &[&str]) {
    let relay = Outboxd::start(config);
    let health = relay.wait_health("it says why", 20, |health| health.reason() != "starting");
    assert_eq!(health.status, 503, "{health:?}");
    for words in words {
        assert!(health.detail().contains(words), "{words:?} is missing: {health:?}");
    }
}

/// Proves that what is wrong with the connection's protection is said in words that help.
#[test]
fn wrong_protection_is_said() {
    let kafka = SecureKafka::shared();
    let case = case(kafka);
    let password = PasswordFile::new(PLAIN_PASSWORD);
    let right = sasl(&case, kafka, "PLAIN", "plain", &password);
    let other = Authority::new(&private_dir("other-ca"));
    let with_ca = |path: &Path| right.clone().set_in("sink.kafka.options", "ssl.ca.location", path.to_str().unwrap());
    says(&with_ca(&other.certificate()), &["TLS", &kafka.sasl, "certificate could not be verified", "ssl.ca.location"]);
    let port = kafka.sasl.rsplit_once(':').unwrap().1;
    let by_name = right.clone().set("sink.kafka.bootstrap-servers", format!("localhost:{port}"));
    says(&by_name, &["certificate"]);
    let plaintext = right.clone().set_in("sink.kafka.options", "security.protocol", "SASL_PLAINTEXT");
    says(&plaintext, &["security.protocol"]);
    let mechanism = right.clone().set("sink.kafka.bootstrap-servers", kafka.short.as_str());
    says(&mechanism, &["refused the login", "PLAIN", "SCRAM-SHA-512"]);
    let ended = Outboxd::run_to_end(&with_ca(Path::new("/nowhere/ca.pem")));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("ssl.ca.location") && ended.stderr.contains("error"), "{}", ended.stderr);
}

/// Proves that a client's certificate takes the place of a password, and that its lack is said.
#[test]
fn client_certificate() {
    let kafka = SecureKafka::shared();
    let case = case(kafka);
    let certificate = kafka.authority.issue(CERTIFIED, "DNS:outboxd");
    let bare = kafka.trusting(case.config(), "SSL", &kafka.mutual);
    works(
        &case,
        &bare
            .clone()
            .set_in("sink.kafka.options", "ssl.certificate.location", certificate.certificate.to_str().unwrap())
            .set_in("sink.kafka.options", "ssl.key.location", certificate.key.to_str().unwrap()),
    );
    let relay = Outboxd::start(&bare);
    let health = relay.wait_reason("authentication_failed", 20);
    assert!(health.detail().contains("certificate"), "{health:?}");
}

/// Proves that a certificate that is renewed on disk is taken without a restart, once the broker no longer likes the old
/// one.
#[test]
fn fr_45_certificate_is_renewed() {
    let kafka = SecureKafka::start();
    let case = case(&kafka);
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("client.pem"), dir.path().join("client.key"));
    let install = |authority: &Authority| {
        let issued = authority.issue(CERTIFIED, "DNS:outboxd");
        std::fs::copy(issued.certificate, &certificate).unwrap();
        std::fs::copy(issued.key, &key).unwrap();
    };
    install(&kafka.authority);
    let relay = Outboxd::start(
        &kafka
            .trusting(case.config(), "SSL", &kafka.mutual)
            .set_in("sink.kafka.options", "ssl.certificate.location", certificate.to_str().unwrap())
            .set_in("sink.kafka.options", "ssl.key.location", key.to_str().unwrap()),
    );
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    let next = Authority::new(&private_dir("next-ca"));
    std::fs::copy(next.certificate(), &kafka.trusted).unwrap();
    kafka.stop();
    kafka.start_again();
    relay.wait_reason("authentication_failed", 30);
    case.insert("A", "1", "two");
    install(&next);
    relay.wait_health("renewed", 40, |health| health.status == 200);
    assert_eq!(without_repeats(case.values_until("A", "two", 20)), ["one", "two"]);
}

/// Proves that a topic that the user may not write to is waited for by name, that nothing behind it is confirmed, and
/// that the relay goes on once the right is granted; whether the user may see the topic or not.
#[test]
fn fr_42_denied_topic_waits() {
    for may_see in [false, true] {
        let kafka = SecureKafka::shared();
        let case = case(kafka);
        let user = case.tag.as_str();
        kafka.set_password(user, "SCRAM-SHA-256", "limited-secret");
        kafka.grant(
            user,
            &["Read", "Write", "Create", "Describe", "DescribeConfigs"],
            &["--topic", &case.positions_topic(), "--topic", &case.topic("A")],
        );
        case.kafka.create_topic(&case.topic("Secret"), 1, &[]);
        if may_see {
            kafka.grant(user, &["Describe"], &["--topic", &case.topic("Secret")]);
        }
        let password = PasswordFile::new("limited-secret");
        let relay = Outboxd::start(&sasl(&case, kafka, "SCRAM-SHA-256", user, &password));
        relay.ready();
        case.insert("A", "1", "a1");
        case.consume("A", 1, 20);
        case.insert("Secret", "1", "s1");
        let behind = case.db.log_end();
        case.insert("Secret", "1", "s2");
        let health = relay.wait_reason("topic_not_authorized", 20);
        assert!(health.detail().contains(&case.topic("Secret")), "the topic is not named: {health:?}");
        let watched = Instant::now();
        eventually("it stays so", 20, || {
            assert!(case.confirmed() < behind, "confirmed without having been published");
            (watched.elapsed() >= Duration::from_secs(6)).then_some(())
        });
        assert_eq!(case.kafka.read_all(&case.topic("Secret")), []);
        kafka.grant(user, &["Write", "Describe"], &["--topic", &case.topic("Secret")]);
        relay.wait_health("granted", 40, |health| health.status == 200);
        assert_eq!(without_repeats(case.values_until("Secret", "s2", 40)), ["s1", "s2"]);
    }
}

/// Proves that a user without the right to the positions topic, or to make it, is told what to grant.
#[test]
fn denied_positions_topic_is_named() {
    let kafka = SecureKafka::shared();
    let case = case(kafka);
    let user = case.tag.as_str();
    kafka.set_password(user, "SCRAM-SHA-256", "limited-secret");
    let password = PasswordFile::new("limited-secret");
    let ended = Outboxd::run_to_end(&sasl(&case, kafka, "SCRAM-SHA-256", user, &password));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for words in [case.positions_topic().as_str(), "WRITE", "DESCRIBE_CONFIGS"] {
        assert!(ended.stderr.contains(words), "{words:?} is missing:\n{}", ended.stderr);
    }
}
