//! The end of a session: what was read goes out, as far as the sink takes it, and is committed.

use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::{End, Session, TICK};
use crate::position::Position;
use crate::sink::positions::PositionRecord;
use crate::sink::{Acknowledgements, Sink, SinkError};
use crate::source::{Disposition, Source, SourceError};
use crate::state::Gap;

/// Longest wait for acknowledgements when the source has gone: what arrives is not sent again.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// The same before a state that a person has to end, who may go on behind it: what is not published then never is.
const FINAL_LINGER: Duration = Duration::from_secs(10);

/// How long the sink is waited for.
pub(super) fn patience(error: &SourceError) -> Duration {
    if error.disposition() == Disposition::Stop { FINAL_LINGER } else { LINGER }
}

/// The error, with a gap that begins no later than what is published.
pub(super) fn behind(error: SourceError, published: Option<Position>) -> SourceError {
    match error {
        SourceError::Terminal(mut terminal) => {
            if let Some(Gap { from: Some(from), .. }) = &mut terminal.gap
                && let Some(published) = published
                && published < *from
            {
                *from = published;
            }
            SourceError::Terminal(terminal)
        }
        other => other,
    }
}

impl<S: Source, K: Sink> Session<'_, S, K> {
    /// Hands over what came before an error of the source: it is complete.
    pub(super) async fn flush(&mut self, error: &SourceError) -> Result<(), End> {
        let deadline = Instant::now() + patience(error);
        self.publish()?;
        while !self.batch.is_empty() && Instant::now() < deadline && error.disposition() == Disposition::Stop {
            let waited = tokio::time::timeout(TICK, self.sink.acknowledged(&mut self.acknowledgements)).await;
            waited.unwrap_or(Ok(()))?;
            for ack in self.acknowledgements.acks.drain(..) {
                self.reporter.acknowledged(u64::from(ack.records), self.template.is_none());
                self.window.acknowledge(ack);
            }
            self.reporter.beat();
            self.publish()?;
        }
        Ok(())
    }

    /// Closes the source first (a server that is stopping waits until our connection is gone), then commits what the sink
    /// still acknowledges, so that it is not sent again. Gives the position up to which all is published.
    pub(super) async fn leave(self, limit: Duration) -> Option<Position> {
        let Self { source, sink, mut window, template, mut committed, .. } = self;
        let verified = source.verified();
        source.close().await;
        let template = template?;
        let mut acknowledgements = Acknowledgements::default();
        let linger = async {
            loop {
                while window.pop_finished().is_some() {}
                let durable = window.durable();
                if window.records() == 0 && committed.as_ref() >= durable {
                    return Ok(());
                }
                if durable > committed.as_ref()
                    && let Some(position) = durable.cloned()
                {
                    let verified = verified.clone().min(position.clone());
                    sink.commit(&PositionRecord { position, verified, ..template.clone() })?;
                }
                sink.acknowledged(&mut acknowledgements).await?;
                for ack in acknowledgements.acks.drain(..) {
                    window.acknowledge(ack);
                }
                committed = committed.max(acknowledgements.committed.take());
            }
        };
        let lingered: Result<Result<(), SinkError>, _> = tokio::time::timeout(limit, linger).await;
        if !matches!(lingered, Ok(Ok(()))) {
            debug!("records are unacknowledged; they will be sent again");
        }
        window.durable().cloned()
    }

    /// Waits up to `limit` for all that is outstanding, then commits and confirms it. Rows of the batch that were not
    /// handed over are read again at the next start.
    pub(super) async fn settle(&mut self, limit: Duration) -> Result<(), End> {
        let deadline = Instant::now() + limit;
        let mut ticker = tokio::time::interval(TICK);
        while Instant::now() < deadline {
            self.commit_if(Duration::ZERO)?;
            let is_committed = self.committed.as_ref() >= self.window.durable();
            if self.window.records() == 0 && is_committed {
                break;
            }
            tokio::select! {
                biased;
                _ = ticker.tick() => {
                    self.reporter.beat();
                    self.source.confirm(None).await?;
                }
                result = self.sink.acknowledged(&mut self.acknowledgements) => {
                    result?;
                    self.take_acknowledgements().await?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Lsn;
    use crate::source::Terminal;
    use crate::state::Reason;

    #[test]
    fn a_gap_begins_where_publishing_ended() {
        let at = |lsn| Position::Postgres(Lsn(lsn));
        let gap = |from: Option<u64>, published: Option<u64>| {
            let (reason, message, hint) = (Reason::LogNotUnderstood, String::new(), String::new());
            let gap = Some(Gap { from: from.map(at), to: None });
            let error = SourceError::Terminal(Box::new(Terminal { reason, message, gap, hint }));
            match behind(error, published.map(at)) {
                SourceError::Terminal(terminal) => terminal.gap.and_then(|gap| gap.from),
                _ => None,
            }
        };
        assert_eq!(gap(Some(9), Some(5)), Some(at(5)));
        assert_eq!(gap(Some(3), Some(5)), Some(at(3)));
        assert_eq!(gap(Some(9), None), Some(at(9)));
        assert_eq!(gap(None, Some(5)), None);
    }
}
