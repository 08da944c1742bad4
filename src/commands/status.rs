//! `outboxd status`: where the instance stands, by its own word and by the servers'.

use serde_json::{Value, json};

use crate::commands::state::State;
use crate::commands::{ConfiguredSource, Verdict, ask_relay, configured_source, mysql};
use crate::config::Config;
use crate::finding::bytes;
use crate::position::Lsn;
use crate::sink::positions::PositionRecord;
use crate::sink::store::PositionStore;
use crate::source::SourceError;
use crate::source::postgres::survey::Survey;

/// Everything that could be learned.
struct Learned<'a> {
    config: &'a Config,
    relay: Option<Value>,
    survey: Option<Survey>,
    record: Option<PositionRecord>,
    /// What could not be learned, and why.
    troubles: Vec<String>,
    /// How the relay is started.
    run_command: String,
}

/// Prints where the instance stands. The verdict is the relay's own if it answers, else what the server shows.
///
/// # Errors
/// The configuration has no source; everything else is told.
pub async fn status(config: Config, as_json: bool) -> anyhow::Result<Verdict> {
    let settings = match configured_source(&config)? {
        ConfiguredSource::Postgres(settings) => settings,
        ConfiguredSource::Mysql(settings) => return mysql::status(&config, &settings, as_json).await,
    };
    let mut troubles = Vec::new();
    let relay = ask_relay(&config).await;
    // before the position is read, which may only be ahead of the slot
    let survey = match Survey::take(&settings).await {
        Ok(survey) => Some(survey),
        Err(error) => {
            troubles.push(crate::chain(&error).replace('\n', "; "));
            None
        }
    };
    let (mut record, mut is_known) = (None, true);
    match PositionStore::new(&config) {
        Ok(mut store) => match store.peek(&config.name).await {
            Ok(found) => record = found,
            Err(error) => {
                is_known = false;
                troubles.push(error.to_string());
            }
        },
        Err(error) => troubles.push(error.to_string()),
    }
    let run_command = settings.names.command("run");
    let learned = Learned { config: &config, relay, survey, record, troubles, run_command };
    let state = learned.state(is_known).await;
    if as_json {
        println!("{}", learned.json(&settings.names.slot, &state));
    } else {
        learned.print(&settings.names.slot, &state);
    }
    Ok(state.verdict)
}

impl Learned<'_> {
    async fn state(&self, is_known: bool) -> State {
        if let Some(relay) = &self.relay {
            return State::of_relay(relay);
        }
        let Some(survey) = &self.survey else {
            return State::seen(Verdict::NotReady, "unknown", "source_unreachable", self.troubles.join("; "), "");
        };
        let judged = if is_known { survey.judge(self.record.as_ref()).await } else { Ok(()) };
        match judged {
            Err(SourceError::Terminal(terminal)) => State::terminal(&terminal),
            Err(error) => {
                let hint = error.hint().unwrap_or_default().replace('\n', " ");
                let detail = crate::chain(&error).replace('\n', "; ");
                State::seen(Verdict::NotReady, "stopped", error.reason().code(), detail, &hint)
            }
            Ok(()) => match survey.holder() {
                Some(holder) if holder.is_peer => {
                    let detail = format!("{}; its listener does not answer here", holder.words);
                    State::seen(Verdict::Done, "streaming", "streaming", detail, "")
                }
                Some(holder) => {
                    State::seen(Verdict::NotReady, "stopped", "slot_in_use", holder.words.clone(), "stop it")
                }
                None => {
                    let hint = format!("start it: {}", self.run_command);
                    State::seen(Verdict::NotReady, "stopped", "not_running", self.not_running(), &hint)
                }
            },
        }
    }

    fn not_running(&self) -> String {
        let listen = &self.config.http.listen;
        if listen.is_empty() {
            return "nobody uses the slot".to_owned();
        }
        format!("nobody uses the slot, and no instance of this name answers at {listen}")
    }

    /// Where publishing has come to: the stored position, or the slot's where none is stored.
    fn published(&self) -> Option<Lsn> {
        let stored = self.record.as_ref().and_then(|record| record.position.lsn());
        stored.or_else(|| self.survey.as_ref()?.slot()?.confirmed)
    }

    fn lag(&self) -> Option<u64> {
        Some(self.survey.as_ref()?.wal_end().bytes_since(self.published()?))
    }

    fn json(&self, slot_name: &str, state: &State) -> Value {
        let survey = self.survey.as_ref();
        let slot = survey.and_then(Survey::slot).map(|slot| {
            json!({
                "name": slot_name,
                "position": slot.confirmed.map(|lsn| lsn.to_string()),
                "wal_status": slot.wal_status,
                "retained_bytes": slot.retained_bytes,
                "active_pid": survey.and_then(Survey::holder).map(|holder| holder.pid),
            })
        });
        json!({
            "name": self.config.name,
            "ready": state.verdict == Verdict::Done,
            "phase": state.phase,
            "reason": state.reason,
            "detail": state.detail,
            "hint": if state.hint.is_empty() { Value::Null } else { state.hint.clone().into() },
            "gap": state.gap,
            "since": state.since,
            "said_by": if state.by_relay { "relay" } else { "server" },
            "slot": slot,
            "position": self.record.as_ref().map(|record| record.position.to_string()),
            "generation": self.record.as_ref().map(|record| record.generation),
            "log_end": survey.map(|survey| survey.wal_end().to_string()),
            "lag_bytes": self.lag(),
            "not_learned": self.troubles,
        })
    }

    fn print(&self, slot_name: &str, state: &State) {
        let since = state.since.as_str().map_or_else(String::new, |since| format!(", since {since}"));
        println!("instance \"{}\": {} ({}){since}", self.config.name, state.phase, state.reason);
        let side = |key: &str| state.gap.get(key).and_then(Value::as_str).unwrap_or("?");
        let gap = state.gap.is_object().then(|| format!("{} to {}", side("from"), side("to")));
        let who = if state.by_relay { "the relay itself" } else { "the server: no relay answers here" };
        let slot = self.survey.as_ref().map(|survey| match survey.slot() {
            None => format!("\"{slot_name}\" does not exist"),
            Some(slot) => {
                let position = slot.confirmed.map_or_else(|| "?".to_owned(), |lsn| lsn.to_string());
                let held = slot.retained_bytes.map_or_else(|| "an unknown part".to_owned(), bytes);
                let used = survey
                    .holder()
                    .map_or_else(|| "not in use".to_owned(), |holder| format!("in use by process {}", holder.pid));
                format!("\"{slot_name}\" at {position}, holds back {held} of log, {used}")
            }
        });
        let position = match &self.record {
            Some(record) => Some(format!("{}, generation {}", record.position, record.generation)),
            None if self.troubles.is_empty() => Some("none is stored".to_owned()),
            None => None,
        };
        let log = self.survey.as_ref().map(|survey| format!("ends at {}", survey.wal_end()));
        let lines = [
            ("detail", Some(state.detail.clone()).filter(|detail| !detail.is_empty())),
            ("events may be missing", gap),
            ("hint", Some(state.hint.clone()).filter(|hint| !hint.is_empty())),
            ("said by", Some(who.to_owned())),
            ("slot", slot),
            ("position", position),
            ("log", log),
            ("lag", self.lag().map(bytes)),
        ];
        for (label, line) in lines {
            if let Some(line) = line {
                println!("  {label}: {line}");
            }
        }
        for trouble in &self.troubles {
            eprintln!("error: {trouble}");
        }
    }
}
