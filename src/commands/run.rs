//! `outboxd run`: publish until asked to stop.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::commands::{ConfiguredSource, configured_source};
use crate::config::Config;
use crate::http::{self, Health, Heartbeat};
use crate::metrics::Metrics;
use crate::relay::{Outcome, Relay, Reporter};
use crate::sink::Sink;
use crate::sink::kafka::KafkaSink;
use crate::sink::stdout::StdoutSink;
use crate::source::{mysql, postgres};
use crate::state::StatusBoard;

/// Why a run cannot begin, or how it ended, where that is not an error of the program.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What is wrong, one finding a line.
    pub message: String,
    /// What to do, one remedy a line.
    pub hint: String,
}

/// Runs the relay.
///
/// # Errors
/// [`Refusal`] inside if what is configured cannot work; anything else is a failure of the process.
pub async fn run(config: Config) -> anyhow::Result<Outcome> {
    for warning in &config.warnings {
        warn!("{warning}");
    }
    let refuse = |message: String| Refusal { message, hint: "see the options in the README".to_owned() };
    let origin = configured_source(&config)?;
    let tables = config.outbox.tables.join(",");
    let info = [("version", env!("CARGO_PKG_VERSION")), ("source", origin.name()), ("table", tables.as_str())];
    let (metrics, registry) = Metrics::new(&config.name, &info);
    let (board, heartbeat) = (StatusBoard::default(), Heartbeat::default());

    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(stop_on_signal(stop.clone()));
    // outlives the relay, so that its last state can be read until the process ends
    let http_stop = CancellationToken::new();
    if let Some(address) = config.http.address() {
        let listener = http::bind(address).await.map_err(|error| {
            let (message, hint) = error.lines().into_iter().next().unwrap_or_default();
            Refusal { message, hint: hint.unwrap_or_default() }
        })?;
        info!(%address, "listening for HTTP");
        let health = Health { name: config.name.clone(), board: board.clone(), heartbeat: heartbeat.clone() };
        let http_stop = http_stop.clone();
        tasks.spawn(async move {
            if let Err(error) = http::serve(listener, registry, health, http_stop).await {
                error!(error = %crate::chain(&error), "metrics and health are no longer served");
            }
        });
    }
    let publish_errors = metrics.publish_errors.clone();
    let reporter = Reporter::new(board, metrics, heartbeat, config.delivery.window_bytes);
    let parts = Parts { config: &config, origin, reporter, stop };
    let outcome = if let Some(kafka) = config.sink.kafka.clone() {
        let sink = KafkaSink::new(kafka, &config.name, publish_errors);
        parts.relay(sink.map_err(|error| refuse(error.to_string()))?).await
    } else if let Some(stdout) = &config.sink.stdout {
        parts.relay(StdoutSink::new(stdout)).await
    } else {
        return Err(refuse("no sink is configured".to_owned()).into());
    };
    http_stop.cancel();
    tasks.abort_all();
    Ok(outcome)
}

/// What the relay is made of, whatever the sink.
struct Parts<'a> {
    config: &'a Config,
    origin: ConfiguredSource,
    reporter: Reporter,
    stop: CancellationToken,
}

impl Parts<'_> {
    async fn relay<K: Sink>(self, sink: K) -> Outcome {
        let Self { config, origin, reporter, stop } = self;
        match origin {
            ConfiguredSource::Postgres(settings) => {
                let silence = settings.silence_timeout;
                Relay::new(config, postgres::Connector::new(*settings), silence, sink, reporter, stop).run().await
            }
            ConfiguredSource::Mysql(settings) => {
                let silence = settings.silence_timeout;
                Relay::new(config, mysql::Connector::new(*settings), silence, sink, reporter, stop).run().await
            }
        }
    }
}

/// SIGTERM or SIGINT asks for a stop in good order; a second one ends the process at once.
async fn stop_on_signal(stop: CancellationToken) {
    let signals = || anyhow::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?));
    let (mut terminate, mut interrupt) = match signals().context("listen for signals") {
        Ok(signals) => signals,
        Err(error) => return error!(error = %format!("{error:#}"), "cannot be stopped in good order"),
    };
    for name in ["stopping", "stopping at once"] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("{name}: asked to by a signal");
        if stop.is_cancelled() {
            std::process::exit(1);
        }
        stop.cancel();
    }
}
