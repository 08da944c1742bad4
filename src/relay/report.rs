//! What the relay tells the outside: state, log lines for changes of state, metrics.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tracing::{error, info, warn};

use super::window::{Finished, Window};
use crate::change::Ignored;
use crate::http::Heartbeat;
use crate::metrics::{Metrics, ReasonLabel};
use crate::position::Position;
use crate::state::{Phase, Reason, Status, StatusBoard};

/// Tells the outside. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Reporter {
    board: StatusBoard,
    metrics: Metrics,
    heartbeat: Heartbeat,
    /// When everything that the server had was acknowledged: what is not known to be sent counts from here.
    caught_up: Instant,
}

impl Reporter {
    /// Tells through these.
    #[must_use]
    pub fn new(board: StatusBoard, metrics: Metrics, heartbeat: Heartbeat, window_bytes: u64) -> Self {
        metrics.in_flight_limit_bytes.set(i64::try_from(window_bytes).unwrap_or(i64::MAX));
        Self { board, metrics, heartbeat, caught_up: Instant::now() }
    }

    /// The board, for who waits inside a call.
    #[must_use]
    pub fn board(&self) -> &StatusBoard {
        &self.board
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The loop lives.
    pub fn beat(&self) {
        self.heartbeat.beat();
    }

    /// Sets the state; a change is one log line.
    pub fn set(&self, status: Status) {
        let Status { phase, reason, detail, hint, gap, .. } = status.clone();
        if !self.board.set(status) {
            return;
        }
        let (state, hint) = (phase.as_str(), hint.unwrap_or_default());
        match phase {
            Phase::Terminal => {
                let gap = gap.map_or_else(|| "none".to_owned(), |gap| gap.to_string());
                error!(state, %reason, gap, hint, "{detail}");
            }
            Phase::Blocked => warn!(state, %reason, hint, "{detail}"),
            Phase::Connecting if !matches!(reason, Reason::Starting | Reason::SlotCreating) => {
                warn!(state, %reason, "{detail}");
            }
            _ => info!(state, %reason, "{detail}"),
        }
    }

    /// A record that is worth counting although nothing is wrong with it.
    pub fn odd_record(&self, has_key: bool, time_fell_back: bool) {
        if !has_key {
            self.metrics.null_keys.inc();
        }
        if time_fell_back {
            self.metrics.timestamp_fallbacks.inc();
        }
    }

    /// Something that is not an event.
    pub fn dropped(&self, what: Ignored) {
        let reason = match what {
            Ignored::Update => "update",
            Ignored::Delete => "delete",
            Ignored::Truncate => "truncate",
            Ignored::OtherTable => "filter",
        };
        self.metrics.dropped.get_or_create(&ReasonLabel { reason: reason.to_owned() }).inc();
    }

    /// A row was given up.
    pub fn failed(&self, reason: Reason) {
        self.metrics.failed.get_or_create(&ReasonLabel { reason: reason.code().to_owned() }).inc();
    }

    /// Records were acknowledged, of rows that stood in the tables or of changes.
    pub fn acknowledged(&self, records: u64, of_first_read: bool) {
        self.metrics.events.inc_by(records);
        if of_first_read {
            self.metrics.snapshot_rows.inc_by(records);
        }
    }

    /// A transaction is acknowledged whole.
    pub fn finished(&self, finished: &Finished) {
        let committed = seconds(finished.commit_ts_us);
        self.metrics.transactions.inc();
        self.metrics.publish_latency.observe((now() - committed).max(0.0));
        self.metrics.last_event_timestamp.set(committed);
    }

    /// A position is durable.
    pub fn committed(&self, position: &Position) {
        self.metrics.position.set(match position {
            Position::Postgres(lsn) => lsn.0,
            Position::Binlog(place) => place.offset,
        });
    }

    /// Brings the gauges up to date while streaming, or while the tables are read: then what is committed meanwhile waits.
    /// `is_current`: the source has no rows that we do not know of.
    pub fn update(
        &mut self,
        window: &Window,
        sink_connected: bool,
        retained_bytes: Option<u64>,
        is_current: bool,
        is_first_read: bool,
    ) {
        self.beat();
        self.metrics.snapshot_running.set(i64::from(is_first_read));
        let pending = match window.oldest_commit_ts_us() {
            _ if is_first_read => self.caught_up.elapsed().as_secs_f64(),
            Some(oldest) => (now() - seconds(oldest)).max(0.0),
            None if is_current => {
                self.caught_up = Instant::now();
                0.0
            }
            None => self.caught_up.elapsed().as_secs_f64(),
        };
        self.metrics.pending_seconds.set(pending);
        self.metrics.source_lag_seconds.set(pending);
        self.metrics.pending_count.set(gauge(window.records()));
        self.metrics.in_flight_bytes.set(gauge(window.bytes()));
        self.metrics.source_connected.set(1);
        self.metrics.kafka_connected.set(i64::from(sink_connected));
        if let Some(bytes) = retained_bytes {
            self.retained(bytes);
        }
    }

    /// The server holds back so much log for us.
    pub fn retained(&self, bytes: u64) {
        self.metrics.slot_retained_bytes.set(gauge(bytes));
    }

    /// Brings the gauges up to date while not streaming: nothing is on its way, and what is pending grows from when all was
    /// sent.
    pub fn idle(&self, sink_connected: bool) {
        self.beat();
        self.metrics.pending_count.set(0);
        self.metrics.in_flight_bytes.set(0);
        self.metrics.source_connected.set(0);
        self.metrics.kafka_connected.set(i64::from(sink_connected));
        self.metrics.snapshot_running.set(0);
        // a standby has nothing pending: its peer publishes
        let standby = self.board.get().phase == Phase::Standby;
        let pending = if standby { 0.0 } else { self.caught_up.elapsed().as_secs_f64() };
        self.metrics.pending_seconds.set(pending);
        self.metrics.source_lag_seconds.set(pending);
    }

    /// A session begins: the window is empty.
    pub fn begin(&mut self) {
        self.metrics.pending_count.set(0);
        self.metrics.in_flight_bytes.set(0);
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn seconds(microseconds: i64) -> f64 {
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0)).as_secs_f64()
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
