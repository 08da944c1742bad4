//! The beginning of a session: clients, their login, and the position that was stored.

use std::sync::Arc;

use rdkafka::error::KafkaError;
use tracing::debug;

use super::admin::Admin;
use super::client::Mode;
use super::context::{AskingContext, Shared};
use super::session::Session;
use super::{KafkaSink, client, positions, restart};
use crate::sink::SinkError;
use crate::sink::positions::PositionRecord;
use crate::state::Reason;

impl KafkaSink {
    /// Makes the clients of a session; nothing is asked of the brokers yet.
    pub(super) async fn dial(&self) -> Result<(Session, Arc<Admin>), SinkError> {
        let config = &self.config;
        let password = client::read_password(config).await?;
        if let Some(login) = &self.login {
            login.prepare().await?;
        }
        let connection = client::connection(config, &self.name, password.as_ref());
        let not_created = |error: KafkaError| SinkError::Configuration {
            message: format!("could not create the Kafka client: {error}"),
            hint: "see [sink.kafka.options] in the configuration".to_owned(),
        };
        // The producer first: it is the one that says why no broker can be reached.
        let mode = if self.isolate > 0 { Mode::Isolating } else { Mode::Batches { bytes: self.batch_bytes() } };
        debug!(?mode, "beginning a session with the brokers");
        let shared = Shared::new(Arc::clone(&self.wake), self.publish_errors.clone());
        let settings = client::producer(&connection, mode);
        let mut session = Session::new(&settings, shared, mode).map_err(not_created)?;
        let admin = client::admin(&connection)
            .create_with_context(AskingContext(Arc::clone(&session.shared)))
            .map_err(not_created)?;
        let admin: Arc<Admin> = session.adopt(admin);
        session.consumer = client::consumer(&connection, &self.name);
        if let Some(login) = &self.login {
            session.log_in(login)?;
        }
        Ok((session, admin))
    }

    /// Reads the position of `instance` from the positions topic to its end.
    pub(super) async fn read_position(
        &self,
        session: &Session,
        instance: &str,
    ) -> Result<Option<PositionRecord>, SinkError> {
        let (consumer, partitions) = (session.consumer.clone(), session.positions_partitions);
        let (config, key) = (self.config.clone(), instance.to_owned());
        let context = AskingContext(Arc::clone(&session.shared));
        let login = self.login.clone();
        let read = move || positions::read_last(&consumer, context, &config, login.as_deref(), partitions, &key);
        tokio::task::spawn_blocking(read).await.map_err(|error| {
            restart(Reason::SinkUnreachable, format!("reading the positions topic was given up: {error}"), false)
        })?
    }

    /// Has a new token got for the next session: a broker did not take the present one.
    pub(super) fn forget_token(&self) {
        if let Some(login) = &self.login {
            login.forget();
        }
    }
}
