//! The default of every option that has one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::{
    ColumnsConfig, Config, DeliveryConfig, Guarantee, HttpConfig, IdFormat, KafkaConfig, LogConfig, LogFormat,
    MysqlConfig, OauthConfig, OnRowError, OnTerminal, OnUpdate, OutboxConfig, PostgresConfig, RecordConfig, SinkConfig,
    SourceConfig, Start, StdoutConfig,
};
use crate::config::secret::Secret;

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "outbox".to_owned(),
            on_terminal: OnTerminal::default(),
            source: SourceConfig::default(),
            outbox: OutboxConfig::default(),
            record: RecordConfig::default(),
            sink: SinkConfig::default(),
            delivery: DeliveryConfig::default(),
            http: HttpConfig::default(),
            log: LogConfig::default(),
            file: None,
            file_flags: Vec::new(),
            warnings: Vec::new(),
            connector: None,
        }
    }
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: Secret::default(),
            password: None,
            password_file: None,
            password_command: Vec::new(),
            slot: None,
            publication: None,
            start: Start::default(),
            failover_slot: true,
            silence_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl Default for MysqlConfig {
    fn default() -> Self {
        Self {
            url: Secret::default(),
            password: None,
            password_file: None,
            password_command: Vec::new(),
            server_id: None,
            start: Start::default(),
            silence_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self {
            tables: vec!["public.outbox".to_owned()],
            start_where: None,
            start_order_by: Vec::new(),
            on_update: OnUpdate::default(),
            columns: ColumnsConfig::default(),
        }
    }
}

impl Default for ColumnsConfig {
    fn default() -> Self {
        Self {
            id: "id".to_owned(),
            id_format: IdFormat::default(),
            key: "aggregateid".to_owned(),
            route_by: "aggregatetype".to_owned(),
            payload: "payload".to_owned(),
            timestamp: None,
            tracing_context: None,
        }
    }
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            bootstrap_servers: String::new(),
            positions_topic: "outboxd.positions".to_owned(),
            create_topics: true,
            topic_partitions: None,
            topic_replication_factor: None,
            topic_config: BTreeMap::new(),
            sasl_username: None,
            sasl_password: None,
            sasl_password_file: None,
            oauth: OauthConfig::default(),
            options: BTreeMap::new(),
        }
    }
}

impl Default for StdoutConfig {
    fn default() -> Self {
        Self { positions_file: PathBuf::from("outboxd.position.json") }
    }
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            guarantee: Guarantee::default(),
            on_row_error: OnRowError::default(),
            window_bytes: 16 << 20,
            position_interval: Duration::from_millis(100),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9464".to_owned() }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::default(), level: "info".to_owned() }
    }
}
