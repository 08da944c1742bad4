//! outboxd itself, put together as `outboxd run` does it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::place::Place;
use crate::commands::run::Refusal;
use crate::config::{Config, OnTerminal, Overrides};
use crate::http::{self, Health, Heartbeat};
use crate::metrics::Metrics;
use crate::relay::{Outcome, Relay, Reporter};
use crate::sink::kafka::KafkaSink;
use crate::source::postgres::Connector;
use crate::source::postgres::settings::PostgresSettings;
use crate::state::{Phase, StatusBoard};

/// Longest wait for the first session.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the last acknowledgements.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of the demo's relay.
///
/// # Errors
/// A finding, which would be an error of the demo.
pub(super) fn config(place: &Place, bootstrap_servers: String) -> anyhow::Result<Config> {
    let overrides = Overrides {
        name: Some(place.instance.clone()),
        source_url: Some(place.relay_url.clone()),
        bootstrap_servers: Some(bootstrap_servers),
        http_listen: Some("127.0.0.1:0".to_owned()),
        ..Overrides::default()
    };
    let mut config = Config::load(None, &overrides)?;
    config.on_terminal = OnTerminal::Exit;
    if let Some(kafka) = &mut config.sink.kafka {
        // the broker of the demo cannot be asked to make one
        kafka.create_topics = false;
    }
    Ok(config)
}

/// The running relay, with its metrics and health. Dropping it asks it to end.
pub(super) struct RunningRelay {
    board: StatusBoard,
    stop: CancellationToken,
    task: JoinHandle<Outcome>,
    http: JoinHandle<()>,
    /// Cancelled when it has gone, with its connections.
    pub(super) gone: CancellationToken,
    /// Where its state can be seen.
    pub(super) page: SocketAddr,
}

impl RunningRelay {
    /// Starts it and waits until it streams.
    ///
    /// # Errors
    /// [`Refusal`] inside, in its own words, if it does not.
    pub(super) async fn start(config: &Config) -> anyhow::Result<Self> {
        let postgres = config.source.postgres.clone().context("configure a source")?;
        let kafka = config.sink.kafka.clone().context("configure a sink")?;
        let address = config.http.address().context("configure an address")?;
        let settings = PostgresSettings::new(config, &postgres)?;
        let (metrics, registry) = Metrics::new(&config.name, &[("version", env!("CARGO_PKG_VERSION"))]);
        let (board, heartbeat) = (StatusBoard::default(), Heartbeat::default());
        let sink = KafkaSink::new(kafka, &config.name, metrics.publish_errors.clone())?.without_topic_settings();
        let reporter = Reporter::new(board.clone(), metrics, heartbeat.clone(), config.delivery.window_bytes);
        let stop = CancellationToken::new();
        let listener = http::bind(address).await?;
        let page = listener.local_addr().context("ask for the port")?;
        let health = Health { name: config.name.clone(), board: board.clone(), heartbeat };
        let http_stop = stop.clone();
        let http = tokio::spawn(async move {
            let _ = http::serve(listener, registry, health, http_stop).await;
        });
        let connector = Connector::new(settings);
        let relay = Relay::new(config, connector, postgres.silence_timeout, sink, reporter, stop.clone());
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let task = tokio::spawn(async move {
            let _guard = guard;
            relay.run().await
        });
        let mut relay = Self { board, stop, task, http, gone, page };
        relay.wait().await?;
        Ok(relay)
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.board.get();
            if status.phase == Phase::Streaming {
                return Ok(());
            }
            if self.task.is_finished() {
                return Err(self.ended().await);
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("outboxd does not stream: {}: {}", status.reason, status.detail);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for an end that nobody asked for; returns why.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Outcome::Refused { message, hint }) => Refusal { message, hint }.into(),
            Ok(Outcome::Terminal) => {
                let status = self.board.get();
                Refusal { message: status.detail, hint: status.hint.unwrap_or_default() }.into()
            }
            Ok(Outcome::Stopped) => anyhow::anyhow!("outboxd stopped by itself"),
            Err(error) => anyhow::Error::from(error).context("run outboxd"),
        }
    }

    /// Asks it to end, and waits for that.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(STOP_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        // in good order, so that its connections end before what they lead to
        self.stop.cancel();
        self.http.abort();
    }
}
