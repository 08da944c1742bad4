//! Every metric: name, unit and help text in one place. Updated per batch, never per row.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::AtomicU64;

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
    /// `outbox_source_connected`: 1 while the replication connection streams.
    pub source_connected: Gauge,
    /// `outbox_kafka_connected`: 1 while a broker is reachable.
    pub kafka_connected: Gauge,
    /// `outbox_source_reconnects_total`.
    pub source_reconnects: Counter,
    /// `outbox_slot_retained_bytes`: log that the slot holds back on the server.
    pub slot_retained_bytes: Gauge,
}
