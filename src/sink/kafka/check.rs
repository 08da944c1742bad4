//! The Kafka half of `outboxd check`. Makes nothing: whether a topic could be made is asked with "validate only".

use std::sync::Arc;

use rdkafka::admin::{AdminOptions, ConfigResource, NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::admin::{self, ANSWER_TIMEOUT, Admin, Creation, words};
use super::positions::{self, setting};
use super::{KafkaSink, topics, with_trouble};
use crate::finding::{Finding, Report, bytes};
use crate::sink::SinkError;

/// Ends the name of the topic whose making is asked about, so that no real one is meant.
const PROBE: &str = "outboxd-check";

/// Most topics that are told one by one.
const MAX_SHOWN: usize = 20;

/// What the brokers tell about all topics.
struct Cluster {
    brokers: usize,
    topics: Vec<(String, usize)>,
}

impl KafkaSink {
    /// Looks at brokers and topics. `template` is `record.topic`, `values` are routing values that are known to come.
    pub async fn check(&self, template: &str, values: &[String]) -> Report {
        let mut report = Report::default();
        if let Some(url) = self.config.oauth.token_endpoint.as_ref().filter(|url| url.starts_with("http://")) {
            report.warning(
                format!(
                    "the token endpoint \"{url}\" is asked without TLS: the client's secret can be read on the way"
                ),
                "write https:// in sink.kafka.oauth.token-endpoint",
            );
        }
        let (session, admin) = match self.dial().await {
            Ok(dialled) => dialled,
            Err(error) => {
                findings_of(&error).into_iter().for_each(|finding| report.add(finding));
                return report;
            }
        };
        let cluster = match cluster(&admin).await {
            Ok(cluster) => cluster,
            Err(error) => {
                let error = positions::unreachable(&self.config, "reach the brokers", &error);
                let error = with_trouble(error, &session.shared);
                findings_of(&error).into_iter().for_each(|finding| report.add(finding));
                return report;
            }
        };
        let count = if cluster.brokers == 1 { "1 broker".to_owned() } else { format!("{} brokers", cluster.brokers) };
        report.fact(format!("Kafka at {}: {count}, {} topics", self.config.bootstrap_servers, cluster.topics.len()));
        self.check_positions(&admin, &cluster, &mut report).await;
        self.check_events(&admin, &cluster, template, values, &mut report).await;
        report
    }

    async fn check_positions(&self, admin: &Arc<Admin>, cluster: &Cluster, report: &mut Report) {
        let topic = &self.config.positions_topic;
        if cluster.has(topic) {
            // it exists, so that nothing is made
            match positions::verify(admin, &self.config).await {
                Ok(_) => report.fact(format!("positions topic \"{topic}\": exists")),
                Err(error) => findings_of(&error).into_iter().for_each(|finding| report.add(finding)),
            }
            if let Ok(Err(code)) = admin::configuration(admin, topic).await {
                report.warning(
                    format!("whether the positions topic \"{topic}\" is compacted cannot be seen: {code}"),
                    format!("{} --operation DescribeConfigs --topic {topic}", self.acl()),
                );
            }
        } else if self.config.create_topics {
            report.fact(format!("positions topic \"{topic}\": does not exist; the relay makes it"));
            self.probe(admin, topic, &Creation::of_positions(&self.config), report).await;
        } else {
            report.error(
                format!("the positions topic \"{topic}\" does not exist, and create-topics is off"),
                format!(
                    "kafka-topics --bootstrap-server {} --create --topic {topic} --partitions 1 --config \
                     cleanup.policy=compact",
                    self.config.bootstrap_servers
                ),
            );
        }
    }

    async fn check_events(
        &self,
        admin: &Arc<Admin>,
        cluster: &Cluster,
        template: &str,
        values: &[String],
        report: &mut Report,
    ) {
        let (before, after) = template.split_once("${routedByValue}").unwrap_or((template, ""));
        let fits =
            |name: &str| name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
        let existing: Vec<&(String, usize)> = cluster.topics.iter().filter(|(name, _)| fits(name)).collect();
        for (topic, partitions) in existing.iter().take(MAX_SHOWN) {
            match admin::configuration(admin, topic).await {
                Ok(Ok(config)) => {
                    report.fact(describe(topic, *partitions, &config));
                    self.durability(topic, &config, cluster, report);
                }
                Ok(Err(code)) => report.warning(
                    format!("the limits of topic \"{topic}\" cannot be seen: {code}"),
                    format!("{} --operation DescribeConfigs --topic {topic}", self.acl()),
                ),
                Err(error) => report.warning(format!("no answer about topic \"{topic}\": {}", words(&error)), ""),
            }
        }
        if existing.len() > MAX_SHOWN {
            report.fact(format!("and {} more topics \"{template}\"", existing.len() - MAX_SHOWN));
        }
        if existing.is_empty() {
            report.fact(format!("topics \"{template}\": there is none yet"));
        }
        for value in values {
            let topic = template.replace("${routedByValue}", value);
            if let Some(why) = topics::illegal_name(&topic) {
                report.error(
                    format!("a row that stands in the table goes to topic \"{topic}\", which cannot exist: {why}"),
                    "correct the value that chooses the topic, or record.topic",
                );
            } else if !cluster.has(&topic) && !self.config.create_topics {
                report.error(
                    format!(
                        "topic \"{topic}\" does not exist, rows for it stand in the table, and create-topics is off"
                    ),
                    format!(
                        "kafka-topics --bootstrap-server {} --create --topic {topic}",
                        self.config.bootstrap_servers
                    ),
                );
            }
        }
        if self.config.create_topics {
            let probe = format!("{before}{PROBE}{after}");
            let topic = if cluster.has(&probe) { format!("{probe}-2") } else { probe };
            self.probe(admin, &topic, &Creation::of_events(&self.config), report).await;
        }
    }

    /// Asks whether a topic could be made.
    async fn probe(&self, admin: &Arc<Admin>, topic: &str, creation: &Creation, report: &mut Report) {
        let mut new = NewTopic::new(topic, creation.partitions, TopicReplication::Fixed(creation.replication));
        for (key, value) in &creation.config {
            new = new.set(key, value);
        }
        let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT)).validate_only(true);
        let code = match admin.create_topics([&new], &options).await.map(|answers| answers.into_iter().next()) {
            Ok(Some(Ok(_)) | None) => return,
            Ok(Some(Err((_, code)))) => code,
            Err(error) => return report.warning(format!("no answer about making topics: {}", words(&error)), ""),
        };
        let hint = match code {
            RDKafkaErrorCode::TopicAlreadyExists => return,
            RDKafkaErrorCode::InvalidReplicationFactor => {
                "set sink.kafka.topic-replication-factor to at most the number of brokers".to_owned()
            }
            RDKafkaErrorCode::InvalidPartitions => "correct sink.kafka.topic-partitions".to_owned(),
            RDKafkaErrorCode::InvalidConfig => "correct [sink.kafka.topic-config]".to_owned(),
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed => {
                format!("{} --operation Create --cluster", self.acl())
            }
            _ => "see the brokers' log".to_owned(),
        };
        report.error(format!("topics such as \"{topic}\" could not be made: {code}"), hint);
    }

    /// The beginning of the command that grants the relay's user something.
    fn acl(&self) -> String {
        let user = self.config.sasl_username.as_deref().unwrap_or("USER");
        format!("kafka-acls --bootstrap-server {} --add --allow-principal User:{user}", self.config.bootstrap_servers)
    }

    /// An acknowledgement of "all in-sync replicas" is worth as much as there must be of them.
    fn durability(&self, topic: &str, config: &ConfigResource, cluster: &Cluster, report: &mut Report) {
        if cluster.brokers > 1 && setting(config, "min.insync.replicas") == "1" {
            report.warning(
                format!(
                    "topic \"{topic}\" has min.insync.replicas 1: an event counts as acknowledged although one broker alone \
                     holds it"
                ),
                format!(
                    "kafka-configs --bootstrap-server {} --alter --entity-type topics --entity-name {topic} --add-config \
                     min.insync.replicas=2",
                    self.config.bootstrap_servers
                ),
            );
        }
    }
}

impl Cluster {
    fn has(&self, topic: &str) -> bool {
        self.topics.iter().any(|(name, _)| name == topic)
    }
}

/// What a sink's error says, as findings.
#[must_use]
pub fn findings_of(error: &SinkError) -> Vec<Finding> {
    match error {
        SinkError::Configuration { message, hint } | SinkError::Refused { message, hint, .. } => {
            Finding::errors(message, hint)
        }
        SinkError::Restart { message, .. } | SinkError::Closed { message } => {
            let hint = "check sink.kafka.bootstrap-servers, the network, security.protocol and SASL settings, and that the \
                        brokers run";
            vec![Finding::error(message.clone(), hint)]
        }
    }
}

fn describe(topic: &str, partitions: usize, config: &ConfigResource) -> String {
    let limit = setting(config, "max.message.bytes").parse().map_or_else(|_| "unknown".to_owned(), bytes);
    let count = if partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") };
    format!("topic \"{topic}\": {count}, takes records up to {limit}")
}

async fn cluster(admin: &Arc<Admin>) -> Result<Cluster, KafkaError> {
    let client = Arc::clone(admin);
    let asked = tokio::task::spawn_blocking(move || {
        let metadata = client.inner().fetch_metadata(None, ANSWER_TIMEOUT)?;
        let mut topics: Vec<(String, usize)> = metadata
            .topics()
            .iter()
            .filter(|topic| topic.error().is_none())
            .map(|topic| (topic.name().to_owned(), topic.partitions().len()))
            .collect();
        topics.sort();
        Ok(Cluster { brokers: metadata.brokers().len(), topics })
    });
    asked.await.unwrap_or(Err(KafkaError::Canceled))
}
