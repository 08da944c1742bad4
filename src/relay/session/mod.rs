//! One session: a started stream on one side, a sink on the other, and the loop that owns all state between them.
//!
//! ```text
//! read ─▶ batch ─▶ route ─▶ enqueue ─▶ window          acknowledged ─▶ window ─▶ durable position
//!                                                       commit (position record) ─▶ confirm (the source)
//! ```
//!
//! A full window or a blocked topic stops reading, and nothing else: feedback to the server, commits and health go on
//! with every tick.
//!
//! The first read of the tables is a session too, of a source that has an end and without a position record: it commits no
//! position, and is over when all of it is acknowledged.

mod ending;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use self::ending::{LINGER, behind, patience};
use super::report::Reporter;
use super::window::Window;
use crate::change::{Batch, Ignored, Item, Relation};
use crate::config::{DeliveryConfig, OnUpdate};
use crate::position::Position;
use crate::route::{RouteError, Router};
use crate::sink::positions::PositionRecord;
use crate::sink::{Acknowledgements, Enqueued, Ordinal, Sink, SinkError};
use crate::source::{Source, SourceError};
use crate::state::{Phase, Reason, Status};

/// Longest time between two turns of the loop.
const TICK: Duration = Duration::from_millis(100);

/// How often the position is committed while only the server's keepalives move it.
const IDLE_COMMIT: Duration = Duration::from_secs(1);

/// Silence of the source, or of the sink with records outstanding, after which health turns red.
const RED_AFTER: Duration = Duration::from_secs(8);

/// A source that has been silent for longer may hold back rows that we do not know of.
const FRESH: Duration = Duration::from_secs(5);

/// Why a session is over.
#[derive(Debug)]
pub(super) enum End {
    /// A stop was asked for; what could be acknowledged was.
    Stopped,
    /// The source came to its end, and all of it is acknowledged.
    Complete,
    /// The source cannot go on.
    Source(SourceError),
    /// The sink cannot go on.
    Sink(SinkError),
    /// A row can never become a record, and the policy is to stop.
    Row {
        /// What is wrong with it.
        error: RouteError,
        /// The transaction it is in begins behind this position.
        after: Option<Position>,
    },
}

impl From<SourceError> for End {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<SinkError> for End {
    fn from(error: SinkError) -> Self {
        Self::Sink(error)
    }
}

/// What a session needs of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Limits and times.
    pub delivery: DeliveryConfig,
    /// What an update of the outbox means.
    pub on_update: OnUpdate,
    /// Longest silence of the source.
    pub silence_timeout: Duration,
}

/// A running session.
pub(super) struct Session<'a, S, K> {
    settings: &'a Settings,
    source: S,
    sink: &'a mut K,
    router: &'a mut Router,
    reporter: &'a mut Reporter,
    /// The position record with everything but the position; none for a first read, which has no position.
    template: Option<PositionRecord>,
    window: Window,
    batch: Batch,
    /// How much of the batch has been dealt with.
    cursor: usize,
    /// The open transaction and its commit time.
    open: Option<(Ordinal, i64)>,
    is_blocked: bool,
    has_ended: bool,
    /// When a stop was asked for.
    stopping_since: Option<Instant>,
    acknowledgements: Acknowledgements,
    committed: Option<Position>,
    asked: Option<Position>,
    /// `None` until the first one, which does not wait for the interval.
    last_commit: Option<Instant>,
    has_news: bool,
    reading_since: Option<Instant>,
    /// When the sink last acknowledged something, or was given something to acknowledge.
    waiting_since: Instant,
}

impl<'a, S: Source, K: Sink> Session<'a, S, K> {
    /// Puts the parts together. `start` is the position record as it is now, with the position where the stream begins;
    /// none for a first read.
    pub(super) fn new(
        settings: &'a Settings,
        source: S,
        sink: &'a mut K,
        router: &'a mut Router,
        reporter: &'a mut Reporter,
        start: Option<PositionRecord>,
    ) -> Self {
        let mut window = Window::new(settings.delivery.window_bytes);
        if let Some(start) = &start {
            // written even if nothing moves: from now on a slot that is made again is noticed
            window.progress(start.position.clone());
        }
        let now = Instant::now();
        Self {
            settings,
            source,
            sink,
            router,
            reporter,
            template: start,
            window,
            batch: Batch::default(),
            cursor: 0,
            open: None,
            is_blocked: false,
            has_ended: false,
            stopping_since: None,
            acknowledgements: Acknowledgements::default(),
            committed: None,
            asked: None,
            last_commit: None,
            has_news: true,
            reading_since: None,
            waiting_since: now,
        }
    }

    /// Runs until something ends it. What is acknowledged by then is committed; the source is closed.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> End {
        let end = match self.turn(stop).await {
            Ok(()) => End::Stopped,
            Err(end) => end,
        };
        match end {
            End::Stopped => {
                self.reporter.set(stopping());
                // what a first read has done counts for nothing before its end
                let is_first_read = self.template.is_none();
                let limit = if is_first_read { Duration::ZERO } else { self.settings.delivery.shutdown_timeout };
                let limit = limit.saturating_sub(self.stopping_since.map_or(Duration::ZERO, |since| since.elapsed()));
                let failure = self.settle(limit).await.err();
                let left = self.window.records();
                if let Some(failure) = failure {
                    warn!(records = left, end = ?failure, "stopped with records unacknowledged; they will be sent again");
                } else if left > 0 {
                    warn!(records = left, "stopped with records unacknowledged; they will be sent again");
                }
                self.source.close().await;
                End::Stopped
            }
            End::Complete => {
                self.source.close().await;
                end
            }
            // a refusal says nothing against the records before it; any other end of the sink's session means that
            // nothing more will be acknowledged
            End::Sink(SinkError::Restart { .. } | SinkError::Configuration { .. } | SinkError::Closed { .. }) => {
                self.source.close().await;
                end
            }
            End::Source(error) => {
                let limit = patience(&error);
                End::Source(behind(error, self.leave(limit).await))
            }
            End::Sink(SinkError::Refused { .. }) | End::Row { .. } => {
                self.leave(LINGER).await;
                end
            }
        }
    }

    /// The loop. `Ok` means that a stop was asked for. A transaction that is open then may come to its end for half of the
    /// time, since nothing of it counts before that: cut off, its rows would be sent again.
    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), End> {
        let mut ticker = tokio::time::interval(TICK.min(self.settings.delivery.position_interval));
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.publish()?;
            if let Some(since) = self.stopping_since
                && (self.open.is_none() || since.elapsed() >= self.settings.delivery.shutdown_timeout / 2)
            {
                return Ok(());
            }
            if self.has_ended && self.batch.is_empty() && self.window.is_empty() {
                self.source.complete().await?;
                return Err(End::Complete);
            }
            let can_read = self.batch.is_empty() && self.window.has_room() && !self.has_ended;
            self.reading_since = if can_read { self.reading_since.or_else(|| Some(Instant::now())) } else { None };
            if self.source.wants_word() {
                // a server that is stopping waits for all to be confirmed
                self.commit_if(Duration::ZERO)?;
                self.source.confirm(None).await?;
            }
            tokio::select! {
                biased;
                () = stop.cancelled(), if self.stopping_since.is_none() => {
                    self.stopping_since = Some(Instant::now());
                    if self.template.is_none() {
                        return Ok(());
                    }
                    self.reporter.set(stopping());
                }
                _ = ticker.tick() => self.tick().await?,
                result = self.sink.acknowledged(&mut self.acknowledgements) => {
                    result?;
                    self.take_acknowledgements().await?;
                }
                result = self.source.read(&mut self.batch), if can_read => {
                    if let Err(error) = result {
                        self.flush(&error).await?;
                        return Err(error.into());
                    }
                    // a source that has much in store never waits, and others have to get their turn
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Hands over what is in the batch, as far as there is room.
    fn publish(&mut self) -> Result<(), End> {
        while let Some(item) = self.batch.items().get(self.cursor) {
            match item {
                Item::Row(row) => {
                    let Some((ordinal, commit_ts_us)) = self.open else { return Err(outside_transaction()) };
                    if !self.window.has_room() {
                        return Ok(());
                    }
                    let after = self.window.durable().filter(|_| self.template.is_some());
                    let record = self.router.route(self.batch.view(row), commit_ts_us);
                    let record = record.map_err(|error| End::Row { error, after: after.cloned() })?;
                    let (bytes, has_key) = (record.window_bytes(), record.key.is_some());
                    match self.sink.enqueue(&record, ordinal)? {
                        Enqueued::Queued => {
                            if self.window.records() == 0 {
                                self.waiting_since = Instant::now();
                            }
                            self.window.sent(bytes);
                        }
                        Enqueued::Full => return Ok(()),
                        Enqueued::Blocked => {
                            self.is_blocked = true;
                            return Ok(());
                        }
                    }
                    self.is_blocked = false;
                    self.reporter.odd_record(has_key, self.router.time_fell_back());
                }
                Item::Begin { .. } if self.stopping_since.is_some() => return Ok(()),
                Item::Begin { commit_ts_us } => {
                    self.open = Some((self.window.begin(*commit_ts_us), *commit_ts_us));
                }
                Item::Commit(position) => {
                    self.open = None;
                    self.window.complete(position.clone());
                }
                Item::Progress(position) => self.window.progress(position.clone()),
                Item::End => self.has_ended = true,
                Item::Ignored(what, relation) => {
                    let relation = Arc::clone(relation);
                    self.ignore(*what, &relation)?;
                }
            }
            self.cursor += 1;
        }
        self.batch.clear();
        self.cursor = 0;
        self.finish();
        Ok(())
    }

    /// Counts what is not an event, and says so once where a person may want to know.
    fn ignore(&self, what: Ignored, relation: &Relation) -> Result<(), End> {
        let table = format!("{}.{}", relation.schema, relation.table);
        if what == Ignored::Update {
            match self.settings.on_update {
                OnUpdate::Warn => warn!(table, "a row of the outbox was updated, which is not an event"),
                OnUpdate::Error => error!(table, "a row of the outbox was updated, which is not an event"),
                OnUpdate::Stop => {
                    let error = RouteError::Updated { table };
                    return Err(End::Row { error, after: self.window.durable().cloned() });
                }
            }
        } else {
            debug!(table, ?what, "not an event");
        }
        self.reporter.dropped(what);
        Ok(())
    }

    async fn take_acknowledgements(&mut self) -> Result<(), End> {
        if !self.acknowledgements.acks.is_empty() {
            self.waiting_since = Instant::now();
        }
        for ack in self.acknowledgements.acks.drain(..) {
            self.reporter.acknowledged(u64::from(ack.records), self.template.is_none());
            self.window.acknowledge(ack);
        }
        self.finish();
        let Some(position) = self.acknowledgements.committed.take() else { return Ok(()) };
        self.reporter.committed(&position);
        if self.committed.as_ref() < Some(&position) {
            self.committed = Some(position.clone());
        }
        self.source.confirm(Some(position)).await?;
        Ok(())
    }

    /// Takes finished transactions out of the window.
    fn finish(&mut self) {
        while let Some(finished) = self.window.pop_finished() {
            if finished.records > 0 && self.template.is_some() {
                self.has_news = true;
                self.reporter.finished(&finished);
            }
        }
    }

    /// Commits the durable position if it has moved and the last commit is older than `interval`.
    fn commit_if(&mut self, interval: Duration) -> Result<(), End> {
        let Some(template) = &self.template else { return Ok(()) };
        let moved = self.window.durable().filter(|durable| Some(*durable) > self.asked.as_ref());
        let Some(position) = moved.cloned() else { return Ok(()) };
        if self.last_commit.is_some_and(|last| last.elapsed() < interval) {
            return Ok(());
        }
        // the commit itself is not a check: what it covers was read since the last one
        let verified = self.source.verified().min(position.clone());
        let record = PositionRecord { position: position.clone(), verified, ..template.clone() };
        if self.sink.commit(&record)? {
            self.asked = Some(position);
            self.last_commit = Some(Instant::now());
            self.has_news = false;
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), End> {
        let interval = self.settings.delivery.position_interval;
        let interval = if self.has_news { interval } else { interval.max(IDLE_COMMIT) };
        // the ticker itself keeps the pace; without this a commit would wait for every second tick
        self.commit_if(interval.saturating_sub(TICK / 2))?;
        self.source.confirm(None).await?;
        let silent = self.silent_for();
        if silent >= self.settings.silence_timeout {
            return Err(End::Source(SourceError::Connection {
                reason: Reason::SourceSilent,
                message: format!("nothing has come from the server for {silent:.0?}, not even an answer"),
                source: None,
            }));
        }
        let status = self.status(silent);
        self.reporter.set(status);
        let (connected, retained) = (self.sink.is_connected(), self.source.retained_bytes());
        let is_current = silent < FRESH && self.source.is_caught_up();
        self.reporter.update(&self.window, connected, retained, is_current, self.template.is_none());
        Ok(())
    }

    /// Silence of the source that is not our own doing: while the window is full we do not listen.
    fn silent_for(&self) -> Duration {
        let listening = self.reading_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.source.silent_for().min(listening)
    }

    /// What the relay is doing, for whoever asks.
    fn status(&self, silent: Duration) -> Status {
        if self.stopping_since.is_some() {
            return stopping();
        }
        if self.is_blocked
            && let Some(blocked) = self.sink.blocked()
        {
            let mut status = Status::new(Phase::Blocked, blocked.reason, blocked.detail);
            status.hint = Some(blocked.hint);
            return status;
        }
        let stalled = self.window.records() > 0 && self.waiting_since.elapsed() >= RED_AFTER;
        if !self.sink.is_connected() || stalled {
            let detail = if stalled { "what was sent is not acknowledged" } else { "no broker can be reached" };
            return Status::new(Phase::Blocked, Reason::SinkUnreachable, detail);
        }
        if silent >= RED_AFTER {
            return Status::new(
                Phase::Blocked,
                Reason::SourceSilent,
                "nothing comes from the server, not even an answer",
            );
        }
        self.source.status()
    }
}

fn stopping() -> Status {
    Status::new(Phase::Stopping, Reason::Stopping, "waiting for acknowledgements")
}

/// A source breaks its contract; what it says next cannot be trusted.
fn outside_transaction() -> End {
    End::Source(SourceError::Connection {
        reason: Reason::LogNotUnderstood,
        message: "a row came outside of a transaction".to_owned(),
        source: None,
    })
}
