//! A broker with passwords, certificates and rights.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::certificates::Authority;
use super::{Config, PrivateKafka, free_port, must_run, private_dir, script, variable};

/// Password of the user `plain`.
pub(crate) const PLAIN_PASSWORD: &str = "plain-secret";

/// The name in the client's certificate.
pub(crate) const CERTIFIED: &str = "outboxd";

/// Users who may do everything. Others have the rights that a test grants.
const SUPER_USERS: &str = "User:ANONYMOUS;User:plain;User:scram;User:wrong;User:rotated;User:CN=outboxd";

/// A broker whose plain listener is the administrator's, with three more for the program under test.
pub(crate) struct SecureKafka {
    broker: PrivateKafka,
    pub(crate) authority: Authority,
    /// What the broker trusts a client's certificate by.
    pub(crate) trusted: PathBuf,
    /// SASL over TLS: SCRAM and PLAIN.
    pub(crate) sasl: String,
    /// The same, where a login holds for 3 s.
    pub(crate) short: String,
    /// TLS with the client's certificate in place of a password.
    pub(crate) mutual: String,
}

impl SecureKafka {
    /// The one that tests share which do not restart it. `tests/run` ends it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<SecureKafka> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Makes and starts one.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let dir = private_dir("kafka-tls");
        let authority = Authority::new(&dir.join("ca"));
        let server = authority.issue("broker", "IP:127.0.0.1");
        let keystore = dir.join("broker.pem");
        let parts = [&server.key, &server.certificate].map(|file| std::fs::read_to_string(file).unwrap());
        std::fs::write(&keystore, parts.concat()).unwrap();
        let trusted = dir.join("trusted.pem");
        std::fs::copy(authority.certificate(), &trusted).unwrap();

        let broker = PrivateKafka::prepare();
        let (sasl, short, mutual) = (free_port(), free_port(), free_port());
        let plain = broker.port();
        let listeners = format!(
            "PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},SHORT://127.0.0.1:{short},\
             MUTUAL://127.0.0.1:{mutual}"
        );
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
        let plain_login = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        broker.start_with(&format!(
            "listeners={listeners},CONTROLLER://127.0.0.1:{}\n\
             advertised.listeners={listeners}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,SHORT:SASL_SSL,\
             MUTUAL:SSL\n\
             ssl.keystore.type=PEM\nssl.keystore.location={}\n\
             ssl.truststore.type=PEM\nssl.truststore.location={}\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.sasl.plain.sasl.jaas.config={plain_login} user_plain=\"{PLAIN_PASSWORD}\";\n\
             listener.name.sasl.scram-sha-256.sasl.jaas.config={scram}\n\
             listener.name.sasl.scram-sha-512.sasl.jaas.config={scram}\n\
             listener.name.short.sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.short.scram-sha-512.sasl.jaas.config={scram}\n\
             listener.name.short.connections.max.reauth.ms=3000\n\
             listener.name.mutual.ssl.client.auth=required\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users={SUPER_USERS}",
            plain + 1,
            keystore.display(),
            trusted.display(),
        ));
        let at = |port: u16| format!("127.0.0.1:{port}");
        Self { broker, authority, trusted, sasl: at(sasl), short: at(short), mutual: at(mutual) }
    }

    /// Runs one of Kafka's command-line tools as the administrator.
    #[track_caller]
    fn tool(&self, class: &str, arguments: &[&str]) {
        let mut command = script("kafka.sh");
        command.env("KAFKA_JARS", variable("OUTBOX_TEST_KAFKA_JARS"));
        command.arg("tool").arg(format!("org.apache.kafka.tools.{class}"));
        command.arg("--bootstrap-server").arg(&self.broker.bootstrap).args(arguments);
        must_run(&mut command);
    }

    /// Sets a user's password for one kind of SCRAM.
    #[track_caller]
    pub(crate) fn set_password(&self, user: &str, mechanism: &str, password: &str) {
        let secret = format!("{mechanism}=[password={password}]");
        let user = ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", &secret];
        self.tool("ConfigCommand", &user);
    }

    /// Grants operations on what `resource` says, in the tool's words: `--topic t`.
    #[track_caller]
    pub(crate) fn grant(&self, user: &str, operations: &[&str], resource: &[&str]) {
        let principal = format!("User:{user}");
        let mut arguments = vec!["--add", "--allow-principal", &principal];
        arguments.extend(operations.iter().flat_map(|operation| ["--operation", operation]));
        arguments.extend(resource);
        self.tool("AclCommand", &arguments);
    }

    /// How many logins the broker has refused at one of its addresses.
    pub(crate) fn refused_logins(&self, address: &str) -> usize {
        let (log, channel) = (self.broker.log(), format!("channelId={address}-"));
        log.lines().filter(|line| line.contains("Failed authentication") && line.contains(&channel)).count()
    }

    /// What a client needs for TLS, and nothing for logging in.
    pub(crate) fn trusting(&self, config: Config, protocol: &str, bootstrap: &str) -> Config {
        config
            .set("sink.kafka.bootstrap-servers", bootstrap)
            .set_in("sink.kafka.options", "security.protocol", protocol)
            .set_in("sink.kafka.options", "ssl.ca.location", self.authority.certificate().to_str().unwrap())
    }
}

impl Deref for SecureKafka {
    type Target = PrivateKafka;

    fn deref(&self) -> &PrivateKafka {
        &self.broker
    }
}
