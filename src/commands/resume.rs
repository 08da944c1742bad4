//! `outboxd resume`: goes on after a state that only a person can judge, from where he says.
//!
//! Whatever breaks off in between leaves a state in which `run` refuses again: the slot is made or moved first, and the
//! position that allows it is written last.

use std::str::FromStr;

use crate::commands::{
    ConfiguredSource, Verdict, agreed, ask_relay, configured_source, mysql, obstacle, refusal, refuse_while_active,
    sink_error, source_error, text,
};
use crate::config::{Config, Start};
use crate::finding::bytes;
use crate::position::{Lsn, ParsePositionError, Position};
use crate::sink::positions::{FORMAT, PositionRecord, SourceIdentity};
use crate::sink::store::PositionStore;
use crate::source::SourceError;
use crate::source::postgres::settings::PostgresSettings;
use crate::source::postgres::survey::Survey;

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumeFrom {
    /// With what is committed from now on.
    Now,
    /// With the rows that stand in the table.
    Table,
    /// At a position that the slot can still serve.
    Position(Position),
}

impl FromStr for ResumeFrom {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "now" => Ok(Self::Now),
            "table" => Ok(Self::Table),
            position => position.parse().map(Self::Position),
        }
    }
}

/// Shows the gap, asks, and makes `run` go on at `from`. Refuses while an instance is active.
///
/// # Errors
/// What stands in the way; nothing was changed then, unless the message says so.
pub async fn resume(config: Config, from: ResumeFrom, yes: bool) -> anyhow::Result<Verdict> {
    let settings = match configured_source(&config)? {
        ConfiguredSource::Postgres(settings) => settings,
        ConfiguredSource::Mysql(settings) => return mysql::resume(&config, &settings, from, yes).await,
    };
    if from == ResumeFrom::Table && settings.start != Start::Table {
        return Err(refusal(
            "--from table needs source.postgres.start = \"table\", and it is \"now\"",
            "change the option, or name another place to go on from",
        ));
    }
    let mut store = PositionStore::new(&config).map_err(sink_error)?;
    let survey = Survey::take(&settings).await.map_err(source_error)?;
    let relay_waits = refuse_while_active(&config, &survey).await?;
    let record = store.peek(&config.name).await.map_err(sink_error)?;
    survey.usable().map_err(source_error)?;
    let mut task = Resume { config: &config, settings: &settings, survey, store, record };
    let begin = task.show().await?;
    let done = match from {
        ResumeFrom::Position(position) => task.at(position, yes).await?,
        ResumeFrom::Now => task.now(begin, yes).await?,
        ResumeFrom::Table => task.table(yes).await?,
    };
    if !done {
        return Ok(Verdict::NotReady);
    }
    if relay_waits && ask_relay(&config).await.is_some_and(|relay| text(&relay, "phase") == "terminal") {
        println!("the relay that runs stays in its terminal state: start it again");
    } else {
        println!("start the relay: {}", settings.names.command("run"));
    }
    Ok(Verdict::Done)
}

pub(super) struct Resume<'a> {
    pub(super) config: &'a Config,
    pub(super) settings: &'a PostgresSettings,
    pub(super) survey: Survey,
    pub(super) store: PositionStore,
    pub(super) record: Option<PositionRecord>,
}

impl Resume<'_> {
    /// Shows where things stand; returns from where events may be missing.
    async fn show(&self) -> anyhow::Result<Option<Position>> {
        let Resume { config, settings, survey, record, .. } = self;
        println!(
            "instance \"{}\", database \"{}\" at {}",
            config.name, settings.connect.database, settings.connect.address
        );
        let published = record.as_ref().map_or_else(
            || "nothing is stored".to_owned(),
            |record| format!("everything before {} was published (generation {})", record.position, record.generation),
        );
        println!("  position: {published}");
        let confirmed = survey.slot().map(|slot| slot.confirmed.unwrap_or_default());
        let slot = confirmed.map_or_else(|| "does not exist".to_owned(), |lsn| format!("at {lsn}"));
        println!("  slot \"{}\": {slot}", settings.names.slot);
        println!("  log: ends at {}", survey.wal_end());
        if let Some(rows) = survey.standing_rows().await {
            let count = if rows >= 100_000 { "100,000 or more".to_owned() } else { rows.to_string() };
            println!("  rows that stand in the table: {count}");
        }
        let begin = record.as_ref().map(|record| record.position.clone()).or(confirmed.map(Position::Postgres));
        match survey.judge(record.as_ref()).await {
            Err(SourceError::Terminal(terminal)) => {
                println!("  state: {} ({})", terminal.message, terminal.reason);
                if let Some(gap) = &terminal.gap {
                    println!("  events may be missing: {gap}");
                }
                Ok(terminal.gap.and_then(|gap| gap.from).or(begin))
            }
            Err(error) => Err(source_error(error)),
            Ok(()) => {
                let what = match (confirmed, record) {
                    (Some(lsn), _) => format!("the relay would go on at {lsn} by itself, and nothing is missing"),
                    (None, _) => "the relay would begin for the first time".to_owned(),
                };
                println!("  state: {what}");
                Ok(begin)
            }
        }
    }

    /// Asks a person whether to go on. An instance that was started meanwhile is in the way, as at the beginning.
    async fn is_agreed(&self, yes: bool) -> anyhow::Result<bool> {
        if !agreed("Go on?", yes).await? {
            return Ok(false);
        }
        let survey = Survey::take(self.settings).await.map_err(source_error)?;
        refuse_while_active(self.config, &survey).await?;
        Ok(true)
    }

    /// With what is committed from now on. Returns whether a person agreed.
    async fn now(&mut self, begin: Option<Position>, yes: bool) -> anyhow::Result<bool> {
        let (settings, survey) = (self.settings, &self.survey);
        let slot = &settings.names.slot;
        let from = begin.as_ref().map_or_else(String::new, |begin| format!(" after {begin} and"));
        let has_slot = survey.slot().is_some();
        let what = if has_slot { "be dropped and made again" } else { "be made" };
        println!(
            "slot \"{slot}\" will {what}: what was committed{from} before that and is not \
             published yet will not be"
        );
        if !self.is_agreed(yes).await? {
            return Ok(false);
        }
        if !survey.has_publication() {
            survey.make_publication().await.map_err(source_error)?;
            println!("made publication \"{}\"", settings.names.publication);
        }
        if has_slot {
            survey.drop_slot().await.map_err(source_error)?;
            println!("dropped slot \"{slot}\"");
        }
        println!("making slot \"{slot}\": this waits for all transactions that are open");
        let position = survey.make_slot().await.map_err(source_error)?;
        println!("made slot \"{slot}\" at {position}");
        self.write(position).await?;
        let from = begin.map_or_else(String::new, |begin| format!(" from {begin}"));
        println!(
            "publishing begins at {position}; what was committed{from} up to there and is not published yet will not be"
        );
        Ok(true)
    }

    /// With the rows that stand in the table, as at a first start. Returns whether a person agreed.
    async fn table(&mut self, yes: bool) -> anyhow::Result<bool> {
        let slot = &self.settings.names.slot;
        let has_slot = self.survey.slot().is_some();
        println!(
            "slot \"{slot}\" and the stored position will be given up: the next start publishes all rows that stand in the \
             table, also those that were published before, and goes on from there; rows that were deleted are not published"
        );
        if !self.is_agreed(yes).await? {
            return Ok(false);
        }
        if has_slot {
            self.survey.drop_slot().await.map_err(source_error)?;
            println!("dropped slot \"{slot}\"");
        }
        self.store.remove(&self.config.name).await.map_err(sink_error)?;
        println!("removed the stored position");
        Ok(true)
    }

    /// At a position that the slot can serve. Returns whether a person agreed.
    async fn at(&mut self, position: Position, yes: bool) -> anyhow::Result<bool> {
        let Some(position) = position.lsn() else {
            return Err(refusal(format!("{position} is no position of PostgreSQL"), "name an LSN such as 16/B374D848"));
        };
        self.move_to(position, "", yes).await
    }

    /// Behind what a connector has published. Returns whether a person agreed.
    pub(super) async fn behind_connector(&mut self, position: Lsn, yes: bool) -> anyhow::Result<bool> {
        self.move_to(position, " again", yes).await
    }

    async fn move_to(&mut self, position: Lsn, again: &str, yes: bool) -> anyhow::Result<bool> {
        let survey = &self.survey;
        let slot = &self.settings.names.slot;
        let confirmed = survey.serves(position).map_err(source_error)?;
        let skipped = position.bytes_since(confirmed);
        if skipped > 0 {
            println!(
                "slot \"{slot}\" will be moved from {confirmed} to {position}: events that were committed in these {} of log \
                 are not published{again}",
                bytes(skipped)
            );
        } else {
            println!("publishing will begin at {position}, where slot \"{slot}\" stands");
        }
        if !self.is_agreed(yes).await? {
            return Ok(false);
        }
        if skipped > 0 {
            survey.advance_slot(position).await.map_err(source_error)?;
            println!("moved slot \"{slot}\" to {position}");
        }
        self.write(position).await?;
        println!("publishing begins at {position}");
        Ok(true)
    }

    /// A slot that was used before goes on holding back log.
    fn tell_of_other_slot(&self) {
        let Some(SourceIdentity::Postgres { slot, .. }) = self.record.as_ref().map(|record| &record.source) else {
            return;
        };
        if *slot != self.settings.names.slot {
            println!(
                "slot \"{slot}\", which was used before, is left; if nobody uses it: SELECT pg_drop_replication_slot('{slot}');"
            );
        }
    }

    /// Writes the position that lets `run` begin at `position`, with everything as it is now.
    async fn write(&mut self, position: Lsn) -> anyhow::Result<()> {
        let again = self.settings.names.resume_command("now");
        let unfinished = |error: anyhow::Error| {
            obstacle(
                format!(
                    "{error:#}; the slot is in its place and the position was not written: the relay will not start"
                ),
                format!("run it once more: {again}"),
            )
        };
        let survey = Survey::take(self.settings).await.map_err(|error| unfinished(source_error(error)))?;
        let source: SourceIdentity =
            survey.identity().map_err(|error| unfinished(anyhow::anyhow!(crate::chain(error))))?;
        let record = PositionRecord {
            version: FORMAT,
            instance: self.config.name.clone(),
            generation: self.record.as_ref().map_or(0, |record| record.generation) + 1,
            source,
            position: Position::Postgres(position),
            verified: Position::Postgres(position),
        };
        self.store.write(&record).await.map_err(|error| unfinished(sink_error(error)))?;
        println!("wrote position {position}, generation {}", record.generation);
        self.tell_of_other_slot();
        // what was just written is what `run` will read: see that it likes it
        let survey = Survey::take(self.settings).await.map_err(source_error)?;
        survey.judge(Some(&record)).await.map_err(source_error)
    }
}
