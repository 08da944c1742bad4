//! Login at the broker by a token, which the broker verifies by the issuer's public key.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::case::without_repeats;
use crate::support::certificates::Authority;
use crate::support::issuer::{AUDIENCE, Answer, CLIENT, ISSUER, Issuer, TokenEndpoint};
use crate::support::tool::Tool;
use crate::support::{
    Case, Config, Outboxd, PrivateKafka, Server, Version, base_table, eventually, free_port, holds, private_dir,
};

/// A broker whose plain listener is the administrator's, and one for tokens.
struct TokenKafka {
    broker: PrivateKafka,
    issuer: Issuer,
    /// A connection ends with the token that it was made with, unless it logs in anew.
    bootstrap: String,
}

impl TokenKafka {
    /// The one that these tests share. `tests/run` ends it.
    fn shared() -> &'static Self {
        static SHARED: OnceLock<TokenKafka> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    #[track_caller]
    fn start() -> Self {
        let dir = private_dir("issuer");
        let issuer = Issuer::new(&dir);
        let keys = dir.join("keys.json");
        std::fs::write(&keys, issuer.keys()).unwrap();
        let broker = PrivateKafka::prepare();
        let (plain, token) = (broker.port(), free_port());
        let listeners = format!("PLAINTEXT://127.0.0.1:{plain},TOKEN://127.0.0.1:{token}");
        let package = "org.apache.kafka.common.security.oauthbearer";
        broker.start_with_jvm(
            &format!(
                "listeners={listeners},CONTROLLER://127.0.0.1:{}\n\
                 advertised.listeners={listeners}\n\
                 listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKEN:SASL_PLAINTEXT\n\
                 listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER\n\
                 listener.name.token.oauthbearer.sasl.jaas.config={package}.OAuthBearerLoginModule required;\n\
                 listener.name.token.oauthbearer.sasl.server.callback.handler.class=\
                 {package}.OAuthBearerValidatorCallbackHandler\n\
                 listener.name.token.oauthbearer.connections.max.reauth.ms=3600000\n\
                 sasl.oauthbearer.jwks.endpoint.url=file://{keys}\n\
                 sasl.oauthbearer.expected.audience={AUDIENCE}\n\
                 sasl.oauthbearer.expected.issuer={ISSUER}\n\
                 sasl.oauthbearer.clock.skew.seconds=0",
                plain + 1,
                keys = keys.display(),
            ),
            &format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{}", keys.display()),
        );
        Self { broker, issuer, bootstrap: format!("127.0.0.1:{token}") }
    }

    fn tokens(&self, seconds: u64) -> Answer {
        Answer::Token(self.issuer.clone(), AUDIENCE, seconds)
    }

    fn case(&self) -> Case {
        let case = Case::on(&Server::shared(Version::V18), &self.broker);
        case.db.run(&base_table("outbox"));
        case
    }

    fn config(&self, case: &Case) -> Config {
        case.config().set("sink.kafka.bootstrap-servers", self.bootstrap.as_str()).set_in(
            "sink.kafka.options",
            "security.protocol",
            "SASL_PLAINTEXT",
        )
    }
}

/// Any free address.
fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A configuration that asks an endpoint, and the folder of its secret.
fn asking(config: Config, url: &str, secret: &str) -> (Config, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, secret).unwrap();
    let config = config
        .set("sink.kafka.oauth.token-endpoint", url)
        .set("sink.kafka.oauth.client-id", CLIENT.0)
        .set("sink.kafka.oauth.client-secret-file", file.to_str().unwrap())
        .set("sink.kafka.oauth.scope", "events all");
    (config, dir)
}

/// A configuration that runs a shell script for tokens.
fn running(config: Config, script: &str) -> Config {
    config.set("sink.kafka.oauth.token-command", vec!["sh", "-c", script])
}

/// Replaces a file in one step, so that nobody reads half of it.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Proves that a token comes from an endpoint over TLS with an authority of one's own, that it is renewed before it
/// ends, and that the relay goes on over several lives of tokens without a new session.
#[test]
fn endpoint_gives_tokens_which_are_renewed() {
    let kafka = TokenKafka::shared();
    let case = kafka.case();
    let authority = Authority::new(&private_dir("endpoint-ca"));
    let certificate = authority.issue("endpoint", "IP:127.0.0.1");
    let endpoint = TokenEndpoint::start(anywhere(), Some(&certificate), kafka.tokens(12));
    let (config, _secret) = asking(kafka.config(&case), &endpoint.url(), &format!("{}\n", CLIENT.1));
    let config = config
        .set("sink.kafka.oauth.ca-file", authority.certificate().to_str().unwrap())
        .set_in("sink.kafka.oauth.extensions", "logicalCluster", "lkc-1")
        .set_in("sink.kafka.options", "sasl.mechanism", "OAUTHBEARER");
    let relay = Outboxd::start(&config);
    relay.ready();
    let sessions = || relay.stderr().matches("beginning a session with the brokers").count();
    let sessions_before = sessions();
    let mut count = 0;
    let begin = Instant::now();
    // each lives for 12 s, of which a quarter is left when it is renewed: room for a busy machine
    holds("it streams", Duration::from_secs(30), || {
        case.insert("A", "1", &count.to_string());
        count += 1;
        relay.health().is_some_and(|health| health.status == 200 && health.phase() == "streaming")
    });
    assert_eq!(case.consume_complete("A", 0, count, 20), 0, "something was sent again");
    assert!(endpoint.asked() >= 4, "asked {} times in {:?}", endpoint.asked(), begin.elapsed());
    assert_eq!(sessions(), sessions_before, "the session did not last");
    let log = relay.stderr();
    for secret in [CLIENT.1, "eyJ", "geheim"] {
        assert!(!log.contains(secret), "{secret:?} is in the log");
    }
    assert_eq!(relay.terminate(), Some(0));
    // the commands log in the same way, and forget by a tombstone
    let tool = Tool::new(&config.set("http.listen", format!("127.0.0.1:{}", free_port())));
    assert!(tool.ends(&["check"], 0).stdout.contains("1 broker"));
    tool.ends(&["drop-slot", "--yes"], 0);
    assert!(case.slot().is_none() && case.stored_position().is_none());
}

/// Proves that a token comes from a command, bare or in JSON, and that a command that fails is named, holds nothing up
/// but the login, and is run again until it gives a token.
#[test]
fn command_gives_tokens() {
    let kafka = TokenKafka::shared();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let script = format!("cat '{}'", file.display());
    put(&file, &kafka.issuer.token(AUDIENCE, 600));
    let case = kafka.case();
    let relay = Outboxd::start(&running(kafka.config(&case), &script));
    relay.ready();
    case.insert("A", "1", "bare");
    case.consume("A", 1, 20);
    assert_eq!(relay.terminate(), Some(0));

    std::fs::remove_file(&file).unwrap();
    case.insert("A", "1", "waits");
    let relay = Outboxd::start(&running(kafka.config(&case), &script));
    let health = relay.wait_reason("authentication_failed", 20);
    for words in ["token command", "sh", "exit status: 1"] {
        assert!(health.detail().contains(words), "{words:?} is missing: {health:?}");
    }
    put(&file, "geheim geheim");
    relay.wait_health("no token", 20, |health| health.detail().contains("no token"));
    assert!(!relay.stderr().contains("geheim"), "the output is in the log");
    put(&file, &format!(r#"{{"access_token":"{}","expires_in":600}}"#, kafka.issuer.token(AUDIENCE, 600)));
    relay.wait_health("mended", 40, |health| health.status == 200);
    assert_eq!(case.values_until("A", "waits", 20), ["bare", "waits"]);
}

/// Proves that an endpoint that is away, refuses the client or gives no token is told with its words, and is asked
/// until it gives one.
#[test]
fn endpoint_troubles_are_said() {
    let kafka = TokenKafka::shared();
    let case = kafka.case();
    let endpoint = TokenEndpoint::start(anywhere(), None, kafka.tokens(600));
    let (address, url) = (endpoint.address(), endpoint.url());
    drop(endpoint);
    let (config, secret) = asking(kafka.config(&case), &url, "wrong");
    case.insert("A", "1", "before the first start");
    let relay = Outboxd::start(&config);
    let health = relay.wait_reason("authentication_failed", 20);
    for words in ["token endpoint", url.as_str(), "refused"] {
        assert!(health.detail().contains(words), "{words:?} is missing: {health:?}");
    }
    let endpoint = TokenEndpoint::start(address, None, Answer::Other(503, "<html>maintenance</html>"));
    relay.wait_health("the secret is wrong", 30, |health| {
        health.detail().contains("401") && health.detail().contains("invalid_client: who are you?")
    });
    put(&secret.path().join("secret"), CLIENT.1);
    relay.wait_health("maintenance", 30, |health| health.detail().contains("answered 503"));
    for body in ["hello", r#"{"access_token":17}"#] {
        endpoint.set(Answer::Other(200, body));
        relay.wait_health("an answer without a token", 30, |health| health.detail().contains("JSON"));
    }
    endpoint.set(kafka.tokens(600));
    relay.wait_health("mended", 40, |health| health.status == 200);
    assert_eq!(case.values_until("A", "before the first start", 20), ["before the first start"]);
    let tool = Tool::new(&config.set("http.listen", format!("127.0.0.1:{}", free_port())));
    assert!(tool.ends(&["check"], 0).hint("warning", "without TLS").contains("https://"));
}

/// Proves that an endpoint that goes away holds nothing up while the token holds; that afterwards the broker's refusal
/// is a clear state in which nothing is confirmed; and that nothing is lost once the endpoint is back.
#[test]
fn endpoint_away_while_streaming() {
    let kafka = TokenKafka::shared();
    let case = kafka.case();
    let endpoint = TokenEndpoint::start(anywhere(), None, kafka.tokens(6));
    let address = endpoint.address();
    let (config, _secret) = asking(kafka.config(&case), &endpoint.url(), CLIENT.1);
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    drop(endpoint);
    eventually("the log tells that there is no new token", 20, || {
        relay.stderr().contains("could not get a new token").then_some(())
    });
    relay.wait_reason("authentication_failed", 40);
    let before = case.confirmed();
    case.insert("A", "1", "two");
    holds("nothing is confirmed", Duration::from_secs(3), || case.confirmed() <= before);
    let _endpoint = TokenEndpoint::start(address, None, kafka.tokens(600));
    relay.wait_health("back", 40, |health| health.status == 200);
    assert_eq!(without_repeats(case.values_until("A", "two", 20)), ["one", "two"]);
}

/// Proves that a token that the broker does not take is said to be refused, that a new one is got for each try, and
/// that the relay goes on once it gets a right one.
#[test]
fn refused_tokens_are_said() {
    let kafka = TokenKafka::shared();
    let case = kafka.case();
    let stranger = Issuer::new(&private_dir("stranger"));
    let endpoint = TokenEndpoint::start(anywhere(), None, Answer::Token(stranger, AUDIENCE, 600));
    let (config, _secret) = asking(kafka.config(&case), &endpoint.url(), CLIENT.1);
    let relay = Outboxd::start(&config);
    let health = relay.wait_reason("authentication_failed", 30);
    assert!(health.detail().contains("refused the login"), "{health:?}");
    endpoint.set(Answer::Token(kafka.issuer.clone(), "somebody-else", 600));
    let asked = endpoint.asked();
    eventually("it asks for another token", 40, || (endpoint.asked() >= asked + 2).then_some(()));
    assert_eq!(relay.health().unwrap().reason(), "authentication_failed");
    endpoint.set(kafka.tokens(600));
    relay.ready();
    case.insert("A", "1", "arrived");
    assert_eq!(case.consume("A", 1, 20)[0].text(), "arrived");
}

/// Proves that options that contradict each other, or have no effect, are refused by name.
#[test]
fn contradictions_are_refused() {
    let case = Case::new(Version::V18);
    let tokens = |config: Config| running(config, "true").set_in("sink.kafka.options", "security.protocol", "SASL_SSL");
    let endpoint = |url: &str| asking(case.config(), url, "x").0;
    let right = "https://issuer.test/token";
    for (config, words) in [
        (tokens(case.config()).set("sink.kafka.oauth.token-endpoint", right), "leave one of them out"),
        (endpoint("issuer.test/token"), "is no URL"),
        (endpoint("https://user:geheim@issuer.test/token"), "belong to client-id"),
        (endpoint("ftp://issuer.test/token"), "scheme \"ftp\""),
        (endpoint(right), "security.protocol"),
        (endpoint(right).without("sink.kafka.oauth.client-id"), "client-id: is missing"),
        (endpoint(right).without("sink.kafka.oauth.client-secret-file"), "client-secret-file: is missing"),
        (case.config().set("sink.kafka.oauth.scope", "x"), "scope: has no effect"),
        (tokens(case.config()).set("sink.kafka.oauth.ca-file", "/x"), "ca-file: has no effect"),
        (tokens(case.config()).set_in("sink.kafka.options", "sasl.mechanism", "PLAIN"), "\"PLAIN\" does not go"),
        (tokens(case.config()).set("sink.kafka.sasl-username", "x"), "does not go with a login by token"),
        (tokens(case.config()).set_in("sink.kafka.oauth.extensions", "auth", "x"), "is the token itself"),
        (tokens(case.config()).set_in("sink.kafka.oauth.extensions", "a-b", "x"), "letters only"),
        (
            case.config().set_in("sink.kafka.options", "sasl.mechanism", "OAUTHBEARER"),
            "is missing beside the mechanism",
        ),
        (case.config().set_in("sink.kafka.options", "sasl.oauthbearer.method", "oidc"), "[sink.kafka.oauth]"),
    ] {
        let ended = Outboxd::run_to_end(&config);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{words:?} is missing:\n{}", ended.stderr);
        assert!(!ended.stderr.contains("geheim"), "{}", ended.stderr);
    }
}
