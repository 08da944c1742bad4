//! The relay: sessions between a source and a sink, one after the other, until a stop or a terminal state.
//!
//! ```text
//! open the sink ─▶ attach to the source ─▶ read the position again ─▶ verify ─▶ session ─┐
//!       ▲                          └─▶ no slot yet: session that reads the tables ──────┤
//!       └────────────── back-off, poll, or at once, as the error says ◀──────────────────┘
//! ```
//!
//! The position record is read again once the slot is ours: a standby that takes over must compare with what its
//! predecessor wrote last, not with what stood there when it began to wait.

mod report;
mod session;
#[cfg(test)]
mod tests;
mod window;

use std::pin::{Pin, pin};
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::report::Reporter;
use self::session::{End, Session, Settings};
use crate::config::{Config, OnTerminal};
use crate::route::Router;
use crate::sink::positions::{FORMAT, PositionRecord};
use crate::sink::{Sink, SinkError};
use crate::source::{Attached, Begun, Connector, Disposition, Ready, Source, SourceError};
use crate::state::{Gap, Phase, Reason, Status};

/// How often the slot is asked for while another holds it.
const POLL: Duration = Duration::from_secs(1);

/// A session of this length was a success: the next failure begins with the shortest pause.
const SETTLED: Duration = Duration::from_secs(10);

/// How often signs of life are given outside of sessions.
const BEAT: Duration = Duration::from_millis(200);

/// A session may take so long to begin before what was said of the last one no longer holds. Long enough for a sink that
/// begins anew at once, because it has learned the size of batches or the number of partitions: that is no outage.
const GRACE: Duration = Duration::from_secs(2);

/// How often it is asked, outside of sessions, how much log the server holds back.
const LOOK: Duration = Duration::from_secs(15);

/// Longest wait for reading the position while the slot is held and nothing is said to the server yet.
const POSITION_TIMEOUT: Duration = Duration::from_secs(5);

/// How the relay ended.
#[derive(Debug)]
pub enum Outcome {
    /// A stop was asked for, or nobody takes records any more.
    Stopped,
    /// What is configured cannot work: lines of what is wrong, and of what to do.
    Refused {
        /// One finding a line.
        message: String,
        /// One remedy a line.
        hint: String,
    },
    /// A terminal state, with `on-terminal = "exit"`.
    Terminal,
}

/// Sessions of one instance.
pub struct Relay<K, C> {
    name: String,
    on_terminal: OnTerminal,
    settings: Settings,
    connector: C,
    sink: K,
    router: Router,
    reporter: Reporter,
    stop: CancellationToken,
    /// Whether a session has ever run.
    has_run: bool,
    /// Whether the configuration has worked: a session has run, or was refused only because another reader was there. From
    /// then on what is wrong with it may be mended while we wait.
    has_worked: bool,
    /// Whether the next connection is the second of one start: the tables were read over the first.
    goes_on: bool,
    sink_is_open: bool,
    /// The position record when the sink was opened.
    known: Option<PositionRecord>,
    /// When the server was last asked how much log it holds back.
    looked: Instant,
}

impl<K: Sink, C: Connector> Relay<K, C> {
    /// Puts the parts together; connects to nothing.
    #[must_use]
    pub fn new(
        config: &Config,
        connector: C,
        silence_timeout: Duration,
        sink: K,
        reporter: Reporter,
        stop: CancellationToken,
    ) -> Self {
        let settings =
            Settings { delivery: config.delivery.clone(), on_update: config.outbox.on_update, silence_timeout };
        Self {
            name: config.name.clone(),
            on_terminal: config.on_terminal,
            settings,
            connector,
            sink,
            router: Router::new(config),
            reporter,
            stop,
            has_run: false,
            has_worked: false,
            goes_on: false,
            sink_is_open: false,
            known: None,
            looked: Instant::now(),
        }
    }

    /// Runs until a stop is asked for, the configuration is refused at the first start, or a terminal state ends it.
    pub async fn run(mut self) -> Outcome {
        let mut pauses = pauses();
        loop {
            let begun = Instant::now();
            let end = match self.prepare_or_stop().await {
                Err(end) => end,
                Ok(Prepared::Tables(reader)) => self.session(*reader, None).await,
                Ok(Prepared::Stream(source, start)) => self.session(*source, Some(*start)).await,
            };
            if begun.elapsed() >= SETTLED {
                pauses = self::pauses();
            }
            match self.judge(end) {
                Next::Leave(outcome) => {
                    self.sink.close(Duration::from_secs(1)).await;
                    return outcome;
                }
                Next::AtOnce => {}
                Next::Poll => self.pause(POLL).await,
                Next::Retry => {
                    let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
                    self.pause(pause).await;
                }
                Next::Terminal if self.on_terminal == OnTerminal::Exit => {
                    self.sink.close(Duration::from_secs(1)).await;
                    return Outcome::Terminal;
                }
                Next::Terminal => {
                    self.sink.close(Duration::from_secs(1)).await;
                    self.sink_is_open = false;
                    self.pause(Duration::MAX).await;
                }
            }
        }
    }

    /// Runs a session to its end.
    async fn session<S: Source>(&mut self, source: S, start: Option<PositionRecord>) -> End {
        if self.has_run && !self.goes_on {
            self.reporter.metrics().source_reconnects.inc();
        }
        (self.has_run, self.has_worked) = (true, true);
        self.goes_on = false;
        self.reporter.begin();
        // acknowledgements of this session must not be taken for the next one's
        self.sink_is_open = false;
        let session = Session::new(&self.settings, source, &mut self.sink, &mut self.router, &mut self.reporter, start);
        session.run(&self.stop).await
    }

    /// [`prepare`](Self::prepare) with signs of life: making a slot may wait for long transactions.
    async fn prepare_or_stop(&mut self) -> Result<Prepared<C>, End> {
        let (stop, reporter) = (self.stop.clone(), self.reporter.clone());
        let mut ticker = tokio::time::interval(BEAT);
        let sink_connected = self.sink_is_open && self.sink.is_connected();
        let prepare = self.prepare();
        tokio::pin!(prepare);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(End::Stopped),
                prepared = &mut prepare => return prepared,
                _ = ticker.tick() => reporter.idle(sink_connected),
            }
        }
    }

    /// Everything before the first row: sink, slot, comparison.
    async fn prepare(&mut self) -> Result<Prepared<C>, End> {
        let reporter = self.reporter.clone();
        let waits_for = |reason, who: &'static str| {
            move || Status::new(Phase::Connecting, reason, format!("{who} not answer while a session begins"))
        };
        let sink_waits = waits_for(Reason::SinkUnreachable, "the brokers do");
        let source_waits = waits_for(Reason::SourceUnreachable, "the database does");
        if !self.sink_is_open {
            self.known = in_time(&reporter, pin!(self.sink.open(&self.name)), sink_waits).await?;
            self.sink_is_open = true;
        }
        let attach = self.connector.attach(self.known.as_ref(), reporter.board());
        let attached = in_time(&reporter, pin!(attach), source_waits).await?;
        let again = tokio::time::timeout(POSITION_TIMEOUT, self.sink.stored_position(&self.name));
        let again = in_time(&reporter, pin!(again), sink_waits).await;
        let record = again.unwrap_or_else(|_| {
            let message = "the stored position could not be read in time".to_owned();
            Err(SinkError::Restart { reason: Reason::SinkUnreachable, message, at_once: false })
        })?;
        let ready = match attached {
            Attached::Stream(ready) => ready,
            Attached::Tables(reader) if record.is_none() => return Ok(Prepared::Tables(Box::new(reader))),
            // a peer was the first, and has gone since
            Attached::Tables(reader) => {
                reader.close().await;
                self.known = record;
                let message = "another instance has published before this one, and has gone since".to_owned();
                return Err(End::Source(SourceError::SlotInUse { by_peer: false, message }));
            }
        };
        let begun = in_time(&reporter, pin!(ready.begin(record.as_ref())), source_waits).await;
        let Begun { stream, identity, position } = begun?;
        let start = PositionRecord {
            version: FORMAT,
            instance: self.name.clone(),
            generation: record.as_ref().map_or(0, |record| record.generation) + 1,
            source: identity,
            position: position.clone(),
            verified: position,
        };
        Ok(Prepared::Stream(Box::new(stream), Box::new(start)))
    }

    /// What follows from the end of a session, or of the attempt at one.
    fn judge(&mut self, end: End) -> Next {
        match end {
            End::Stopped => Next::Leave(Outcome::Stopped),
            End::Complete => {
                self.connector.tables_were_read();
                self.goes_on = true;
                Next::AtOnce
            }
            End::Row { error, after } => {
                self.reporter.failed(Reason::RowError);
                let hint = match after {
                    Some(_) => {
                        "nothing behind this position is confirmed: mend the table or the configuration, and start again"
                    }
                    None => {
                        "mend the row or the configuration, or leave the row out by option \"outbox.start-where\", and \
                         start again"
                    }
                };
                let gap = after.map(|from| Gap { from: Some(from), to: None });
                self.terminal(Reason::RowError, error.to_string(), hint.to_owned(), gap)
            }
            End::Sink(error) => {
                self.sink_is_open = false;
                self.judge_sink(error)
            }
            End::Source(error) => self.judge_source(error),
        }
    }

    fn judge_sink(&mut self, error: SinkError) -> Next {
        match error {
            SinkError::Restart { message, at_once: true, .. } => {
                info!("{message}");
                Next::AtOnce
            }
            SinkError::Restart { reason, message, at_once: false } => {
                self.reporter.set(Status::new(Phase::Connecting, reason, message));
                Next::Retry
            }
            SinkError::Configuration { message, hint } => self.refuse(Reason::Configuration, message, hint),
            SinkError::Closed { message } => {
                info!("{message}");
                Next::Leave(Outcome::Stopped)
            }
            SinkError::Refused { reason, message, hint } => {
                self.reporter.failed(reason);
                self.terminal(reason, message, hint, None)
            }
        }
    }

    fn judge_source(&mut self, error: SourceError) -> Next {
        let (reason, text) = (error.reason(), crate::chain(&error));
        match error.disposition() {
            Disposition::Retry => {
                self.reporter.set(Status::new(Phase::Connecting, reason, text));
                Next::Retry
            }
            Disposition::Poll => {
                self.has_worked = true;
                let phase = if reason == Reason::Standby { Phase::Standby } else { Phase::Connecting };
                self.reporter.set(Status::new(phase, reason, text));
                Next::Poll
            }
            Disposition::Refuse => {
                let hint = error.hint().unwrap_or_default().to_owned();
                self.refuse(reason, text, hint)
            }
            Disposition::Stop => {
                let hint = error.hint().unwrap_or_default().to_owned();
                let gap = if let SourceError::Terminal(terminal) = &error { terminal.gap.clone() } else { None };
                self.terminal(reason, text, hint, gap)
            }
        }
    }

    /// At the first start a person is at hand; later what worked once is waited for.
    fn refuse(&self, reason: Reason, message: String, hint: String) -> Next {
        if !self.has_worked {
            return Next::Leave(Outcome::Refused { message, hint });
        }
        let mut status = Status::new(Phase::Connecting, reason, message);
        status.hint = Some(hint);
        self.reporter.set(status);
        Next::Retry
    }

    fn terminal(&self, reason: Reason, message: String, hint: String, gap: Option<Gap>) -> Next {
        let mut status = Status::new(Phase::Terminal, reason, message);
        status.hint = Some(hint);
        status.gap = gap;
        self.reporter.set(status);
        Next::Terminal
    }

    /// Waits, with a sign of life, until the time is over or a stop is asked for. The server goes on holding back its log
    /// meanwhile, so how much that is goes on being told.
    async fn pause(&mut self, time: Duration) {
        let (stop, reporter) = (self.stop.clone(), self.reporter.clone());
        let sink_connected = self.sink.is_connected();
        let beat = async {
            let mut ticker = tokio::time::interval(BEAT);
            loop {
                ticker.tick().await;
                reporter.idle(sink_connected);
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(time) => {}
            () = beat => {}
            () = look(&mut self.connector, &reporter, &mut self.looked) => {}
        }
    }
}

/// Waits for a part of what comes before a session. If that takes longer than a moment, nobody may be told any more that
/// the relay is ready.
async fn in_time<T>(
    reporter: &Reporter,
    mut part: Pin<&mut impl Future<Output = T>>,
    late: impl FnOnce() -> Status,
) -> T {
    tokio::select! {
        biased;
        done = &mut part => return done,
        () = tokio::time::sleep(GRACE) => {}
    }
    if reporter.board().get().is_ready() {
        reporter.set(late());
    }
    part.await
}

/// Asks now and then how much log the server holds back. Never ends.
async fn look<C: Connector>(connector: &mut C, reporter: &Reporter, looked: &mut Instant) {
    loop {
        tokio::time::sleep_until(*looked + LOOK).await;
        // also if the answer does not come before the pause is over: then the next one is asked for later
        *looked = Instant::now();
        if let Some(bytes) = connector.retained_bytes().await {
            reporter.retained(bytes);
        }
    }
}

/// What a session begins with.
enum Prepared<C: Connector> {
    /// The rows that stand in the tables.
    Tables(Box<C::Tables>),
    /// The log, and the position record as it is now.
    Stream(Box<C::Stream>, Box<PositionRecord>),
}

/// What the relay does next.
enum Next {
    Leave(Outcome),
    AtOnce,
    Poll,
    Retry,
    Terminal,
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Pauses between attempts: doubling, with jitter so that many relays do not come at once.
fn pauses() -> impl Iterator<Item = Duration> {
    backon::ExponentialBuilder::new()
        .with_min_delay(SHORTEST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build()
}
