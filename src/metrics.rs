//! Every metric: name, unit and help text in one place. Updated per batch, never per row.
//!
//! prometheus-client adds `_total` to the names of counters and `_info` to that of the info metric, and a full stop to
//! each help text.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

use crate::state::{Phase, Reason, StatusBoard};

/// Label `reason`, `error`, `op`, …: one label with a value from a short list.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReasonLabel {
    /// A stable code.
    pub reason: String,
}

/// Label of `outbox_publish_errors_total`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ErrorLabel {
    /// librdkafka's name of the error.
    pub error: String,
}

/// Handles of all metrics. Cheap to clone; all clones count the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// `outbox_pending_seconds`: age of the oldest committed row not yet acknowledged, 0 when none.
    pub pending_seconds: Gauge<f64, AtomicU64>,
    /// `outbox_pending_count`: rows read and not yet acknowledged.
    pub pending_count: Gauge,
    /// `outbox_failed_total{reason}`: rows that could not be turned into a record, or were given up.
    pub failed: Family<ReasonLabel, Counter>,
    /// `outbox_publish_errors_total{error}`: failed sends and broker errors, retried ones too.
    pub publish_errors: Family<ErrorLabel, Counter>,
    /// `outbox_events_total`: rows acknowledged by the sink.
    pub events: Counter,
    /// `outbox_null_keys_total`: rows published without a key.
    pub null_keys: Counter,
    /// `outbox_timestamp_fallbacks_total`: rows whose time column was empty or out of range, sent with the commit time.
    pub timestamp_fallbacks: Counter,
    /// `outbox_events_dropped_total{reason}`: statements on the outbox that are not events: update, delete, truncate, filter.
    pub dropped: Family<ReasonLabel, Counter>,
    /// `outbox_transactions_total`: source transactions published whole.
    pub transactions: Counter,
    /// `outbox_publish_latency_seconds`: from commit to acknowledgement, per transaction.
    pub publish_latency: Histogram,
    /// `outbox_source_lag_seconds`: now minus the commit time of the last acknowledged transaction, 0 when caught up.
    pub source_lag_seconds: Gauge<f64, AtomicU64>,
    /// `outbox_last_event_timestamp_seconds`: commit time of the last acknowledged row, Unix time.
    pub last_event_timestamp: Gauge<f64, AtomicU64>,
    /// `outbox_position`: the confirmed position as a number (the LSN).
    pub position: Gauge<u64, AtomicU64>,
    /// `outbox_in_flight_bytes`: bytes read and not yet acknowledged.
    pub in_flight_bytes: Gauge,
    /// `outbox_in_flight_limit_bytes`: their bound.
    pub in_flight_limit_bytes: Gauge,
    /// `outbox_source_connected`: 1 while the log or the tables are read.
    pub source_connected: Gauge,
    /// `outbox_kafka_connected`: 1 while a broker is reachable.
    pub kafka_connected: Gauge,
    /// `outbox_source_reconnects_total`.
    pub source_reconnects: Counter,
    /// `outbox_slot_retained_bytes`: log that the slot holds back on the server.
    pub slot_retained_bytes: Gauge,
    /// `outbox_snapshot_running`: 1 while the rows that stand in the tables are read.
    pub snapshot_running: Gauge,
    /// `outbox_snapshot_rows_total`: rows of the first read acknowledged by the sink.
    pub snapshot_rows: Counter,
}

/// Upper bounds of `outbox_publish_latency_seconds`: from the time of one round trip on one machine to an outage.
const LATENCY_BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Reasons for which a row can be given up. Present from the start, so that an alarm on an increase sees the first one.
const FAILED_REASONS: [Reason; 3] = [Reason::RowError, Reason::RecordTooLarge, Reason::RecordRefused];

/// librdkafka's usual errors, by the names that its binding gives them; present from the start.
const PUBLISH_ERRORS: [&str; 4] =
    ["BrokerTransportFailure", "AllBrokersDown", "OperationTimedOut", "UnknownTopicOrPartition"];

/// Statements on the outbox that are no events; present from the start.
const DROPPED_REASONS: [&str; 4] = ["update", "delete", "truncate", "filter"];

/// The values of the label `state`.
const PHASES: [Phase; 7] = [
    Phase::Connecting,
    Phase::Standby,
    Phase::Reading,
    Phase::Streaming,
    Phase::Blocked,
    Phase::Stopping,
    Phase::Terminal,
];

impl Metrics {
    /// Makes all metrics at 0 and registers them, each with the label `name="<instance>"`. `info` are the labels of
    /// `outbox_info`.
    #[must_use]
    pub fn new(instance: &str, info: &[(&str, &str)]) -> (Self, Registry) {
        let metrics = Self::at_zero();
        let label = (Cow::Borrowed("name"), Cow::Owned(instance.to_owned()));
        let mut registry = Registry::with_labels(std::iter::once(label));
        metrics.register_delivery(&mut registry);
        metrics.register_source_and_sink(&mut registry);
        let labels: Vec<(String, String)> =
            info.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        registry.register("outbox", "What runs here, in labels", Info::new(labels));
        (metrics, registry)
    }

    fn at_zero() -> Self {
        let metrics = Self {
            pending_seconds: Gauge::default(),
            pending_count: Gauge::default(),
            failed: Family::default(),
            publish_errors: Family::default(),
            events: Counter::default(),
            null_keys: Counter::default(),
            timestamp_fallbacks: Counter::default(),
            dropped: Family::default(),
            transactions: Counter::default(),
            publish_latency: Histogram::new(LATENCY_BUCKETS),
            source_lag_seconds: Gauge::default(),
            last_event_timestamp: Gauge::default(),
            position: Gauge::default(),
            in_flight_bytes: Gauge::default(),
            in_flight_limit_bytes: Gauge::default(),
            source_connected: Gauge::default(),
            kafka_connected: Gauge::default(),
            source_reconnects: Counter::default(),
            slot_retained_bytes: Gauge::default(),
            snapshot_running: Gauge::default(),
            snapshot_rows: Counter::default(),
        };
        for reason in FAILED_REASONS {
            drop(metrics.failed.get_or_create(&ReasonLabel { reason: reason.code().to_owned() }));
        }
        for error in PUBLISH_ERRORS {
            drop(metrics.publish_errors.get_or_create(&ErrorLabel { error: error.to_owned() }));
        }
        for reason in DROPPED_REASONS {
            drop(metrics.dropped.get_or_create(&ReasonLabel { reason: reason.to_owned() }));
        }
        metrics
    }

    fn register_delivery(&self, registry: &mut Registry) {
        let pending = "Age in seconds of the oldest committed row not yet acknowledged, 0 when there is none";
        add(registry, "outbox_pending_seconds", pending, &self.pending_seconds);
        add(registry, "outbox_pending_count", "Rows read and not yet acknowledged", &self.pending_count);
        add(registry, "outbox_events", "Rows acknowledged by the sink", &self.events);
        let failed = "Rows that could not be turned into a record, or were given up";
        add(registry, "outbox_failed", failed, &self.failed);
        let errors = "Failed sends and broker errors, those that were tried again too";
        add(registry, "outbox_publish_errors", errors, &self.publish_errors);
        let dropped = "Statements on an outbox table that are no events";
        add(registry, "outbox_events_dropped", dropped, &self.dropped);
        add(registry, "outbox_null_keys", "Rows published without a key", &self.null_keys);
        let fallbacks = "Rows whose time column was empty or out of range, sent with the commit time";
        add(registry, "outbox_timestamp_fallbacks", fallbacks, &self.timestamp_fallbacks);
        add(registry, "outbox_transactions", "Source transactions published whole", &self.transactions);
        let latency = "Seconds from commit to acknowledgement, per transaction";
        add(registry, "outbox_publish_latency_seconds", latency, &self.publish_latency);
    }

    fn register_source_and_sink(&self, registry: &mut Registry) {
        let lag = "Seconds since the commit of the last acknowledged transaction, 0 when caught up";
        add(registry, "outbox_source_lag_seconds", lag, &self.source_lag_seconds);
        let last = "Commit time of the last acknowledged row, Unix time in seconds";
        add(registry, "outbox_last_event_timestamp_seconds", last, &self.last_event_timestamp);
        add(registry, "outbox_position", "Confirmed position in the log, as a number (the LSN)", &self.position);
        add(registry, "outbox_in_flight_bytes", "Bytes read and not yet acknowledged", &self.in_flight_bytes);
        let limit = "Bound of the bytes read and not yet acknowledged";
        add(registry, "outbox_in_flight_limit_bytes", limit, &self.in_flight_limit_bytes);
        let connected = "1 while the log or the tables are read";
        add(registry, "outbox_source_connected", connected, &self.source_connected);
        add(registry, "outbox_kafka_connected", "1 while a broker can be reached", &self.kafka_connected);
        let reconnects = "Replication connections made after the first one";
        add(registry, "outbox_source_reconnects", reconnects, &self.source_reconnects);
        let retained = "Bytes of the log that the slot holds back on the server";
        add(registry, "outbox_slot_retained_bytes", retained, &self.slot_retained_bytes);
        let running = "1 while the rows that stand in the tables are read, before the first change";
        add(registry, "outbox_snapshot_running", running, &self.snapshot_running);
        let rows = "Rows of the first read acknowledged by the sink; those of a repeated read count again";
        add(registry, "outbox_snapshot_rows", rows, &self.snapshot_rows);
    }
}

fn add(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
    registry.register(name, help, metric.clone());
}

/// Adds `outbox_up`, `outbox_ready` and `outbox_state{state}`, read from the board at each scrape.
pub fn register_status(registry: &mut Registry, board: StatusBoard) {
    registry.register_collector(Box::new(StatusCollector { board }));
}

#[derive(Debug)]
struct StatusCollector {
    board: StatusBoard,
}

impl Collector for StatusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let status = self.board.get();
        let gauges = [
            ("outbox_up", "1: the process lives", 1),
            ("outbox_ready", "1 while the relay publishes or stands by", i64::from(status.is_ready())),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, ConstGauge::<i64>::TYPE)?)?;
        }
        let help = "1 for the present state, 0 for the others";
        let mut family = encoder.encode_descriptor("outbox_state", help, None, MetricType::Gauge)?;
        for phase in PHASES {
            let label = [("state", phase.as_str())];
            let gauge = ConstGauge::new(i64::from(phase == status.phase));
            gauge.encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Status;
    use prometheus_client::encoding::text;

    fn exposition(registry: &Registry) -> String {
        let mut out = String::new();
        text::encode(&mut out, registry).unwrap();
        out
    }

    /// The names that alarms and dashboards rely on are exactly there, at 0, from the start.
    #[test]
    fn every_metric_is_there_from_the_start() {
        let (_, mut registry) = Metrics::new("shop", &[("version", "1.2.3"), ("table", "public.outbox")]);
        register_status(&mut registry, StatusBoard::default());
        let text = exposition(&registry);
        let expected = "\
outbox_pending_seconds{name=\"shop\"} 0.0
outbox_pending_count{name=\"shop\"} 0
outbox_events_total{name=\"shop\"} 0
outbox_failed_total{name=\"shop\",reason=\"row_error\"} 0
outbox_failed_total{name=\"shop\",reason=\"record_too_large\"} 0
outbox_failed_total{name=\"shop\",reason=\"record_refused\"} 0
outbox_publish_errors_total{name=\"shop\",error=\"BrokerTransportFailure\"} 0
outbox_publish_errors_total{name=\"shop\",error=\"AllBrokersDown\"} 0
outbox_events_dropped_total{name=\"shop\",reason=\"update\"} 0
outbox_events_dropped_total{name=\"shop\",reason=\"delete\"} 0
outbox_events_dropped_total{name=\"shop\",reason=\"truncate\"} 0
outbox_null_keys_total{name=\"shop\"} 0
outbox_timestamp_fallbacks_total{name=\"shop\"} 0
outbox_transactions_total{name=\"shop\"} 0
outbox_publish_latency_seconds_bucket{name=\"shop\",le=\"0.001\"} 0
outbox_publish_latency_seconds_count{name=\"shop\"} 0
outbox_source_lag_seconds{name=\"shop\"} 0.0
outbox_last_event_timestamp_seconds{name=\"shop\"} 0.0
outbox_position{name=\"shop\"} 0
outbox_in_flight_bytes{name=\"shop\"} 0
outbox_in_flight_limit_bytes{name=\"shop\"} 0
outbox_source_connected{name=\"shop\"} 0
outbox_kafka_connected{name=\"shop\"} 0
outbox_source_reconnects_total{name=\"shop\"} 0
outbox_slot_retained_bytes{name=\"shop\"} 0
outbox_snapshot_running{name=\"shop\"} 0
outbox_snapshot_rows_total{name=\"shop\"} 0
outbox_info{name=\"shop\",version=\"1.2.3\",table=\"public.outbox\"} 1
outbox_up{name=\"shop\"} 1
outbox_ready{name=\"shop\"} 0
outbox_state{name=\"shop\",state=\"connecting\"} 1
outbox_state{name=\"shop\",state=\"terminal\"} 0";
        for line in expected.lines() {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_state_is_the_boards_at_the_time_of_the_scrape() {
        let (metrics, mut registry) = Metrics::new("shop", &[]);
        let board = StatusBoard::default();
        register_status(&mut registry, board.clone());
        board.set(Status::new(Phase::Streaming, Reason::Streaming, ""));
        metrics.failed.get_or_create(&ReasonLabel { reason: "row_error".to_owned() }).inc();
        let text = exposition(&registry);
        for line in [
            "outbox_ready{name=\"shop\"} 1",
            "outbox_state{name=\"shop\",state=\"streaming\"} 1",
            "outbox_state{name=\"shop\",state=\"connecting\"} 0",
            "outbox_failed_total{name=\"shop\",reason=\"row_error\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_instances_name_is_escaped() {
        let (_, registry) = Metrics::new("a\"b\\c", &[]);
        assert!(exposition(&registry).contains("outbox_events_total{name=\"a\\\"b\\\\c\"} 0"));
    }
}
