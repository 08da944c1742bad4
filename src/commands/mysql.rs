//! The commands on a MySQL or MariaDB source.

use serde_json::{Value, json};

use super::resume::ResumeFrom;
use super::state::State;
use super::{Verdict, agreed, ask_relay, obstacle, refusal, sink_error, source_error, text};
use crate::config::{Config, Start};
use crate::finding::Report;
use crate::position::Position;
use crate::sink::positions::{FORMAT, PositionRecord};
use crate::sink::store::PositionStore;
use crate::source::SourceError;
use crate::source::mysql::settings::MysqlSettings;
use crate::source::mysql::survey::Survey;
use crate::source::postgres::check::findings_of;

/// What is there, and what is wrong with it. `record` is what is stored, if that could be read.
pub(super) async fn check(settings: &MysqlSettings, record: Option<&PositionRecord>) -> Report {
    let mut report = Report::default();
    let looked = async {
        let mut survey = Survey::take(settings).await?;
        let found = survey.check().await?;
        let judged = record.map_or(Ok(()), |record| survey.judge(record));
        Ok::<_, SourceError>((found, judged))
    };
    match looked.await {
        Ok((found, judged)) => {
            report.extend(found);
            if let Err(error) = judged {
                findings_of(&error).into_iter().for_each(|finding| report.add(finding));
            }
            report.fact(match record {
                Some(record) => format!("position: {}, generation {}", record.position, record.generation),
                None => {
                    let begins = match settings.start {
                        Start::Table => "the rows that stand in the tables",
                        Start::Now => "what is committed from then on",
                    };
                    format!("position: none is stored; the relay begins with {begins}")
                }
            });
        }
        Err(error) => findings_of(&error).into_iter().for_each(|finding| report.add(finding)),
    }
    report
}

/// Where the instance stands.
pub(super) async fn status(config: &Config, settings: &MysqlSettings, as_json: bool) -> anyhow::Result<Verdict> {
    let relay = ask_relay(config).await;
    let mut troubles = Vec::new();
    // before the server is asked, which goes on meanwhile
    let mut record = None;
    match PositionStore::new(config) {
        Ok(mut store) => match store.peek(&config.name).await {
            Ok(found) => record = found,
            Err(error) => troubles.push(error.to_string()),
        },
        Err(error) => troubles.push(error.to_string()),
    }
    let survey = match Survey::take(settings).await {
        Ok(survey) => Some(survey),
        Err(error) => {
            troubles.push(crate::chain(&error).replace('\n', "; "));
            None
        }
    };
    let state = match &relay {
        Some(relay) => State::of_relay(relay),
        None => shown(settings, survey.as_ref(), record.as_ref(), &troubles),
    };
    let position = record.as_ref().map(|record| record.position.to_string());
    let end = survey.as_ref().map(|survey| survey.end().to_string());
    if as_json {
        let body = json!({
            "name": config.name,
            "ready": state.verdict == Verdict::Done,
            "phase": state.phase,
            "reason": state.reason,
            "detail": state.detail,
            "hint": if state.hint.is_empty() { Value::Null } else { state.hint.clone().into() },
            "gap": state.gap,
            "since": state.since,
            "said_by": if state.by_relay { "relay" } else { "server" },
            "slot": Value::Null,
            "position": position,
            "generation": record.as_ref().map(|record| record.generation),
            "log_end": end,
            "lag_bytes": Value::Null,
            "not_learned": troubles,
        });
        println!("{body}");
        return Ok(state.verdict);
    }
    println!("instance \"{}\": {} ({})", config.name, state.phase, state.reason);
    let said_by = if state.by_relay { "the relay itself" } else { "the server: no relay answers here" };
    let gap = state.gap.is_object().then(|| state.gap.to_string());
    let stored = position.or_else(|| troubles.is_empty().then(|| "none is stored".to_owned()));
    let lines = [
        ("detail", Some(state.detail).filter(|detail| !detail.is_empty())),
        ("events may be missing", gap),
        ("hint", Some(state.hint).filter(|hint| !hint.is_empty())),
        ("said by", Some(said_by.to_owned())),
        ("position", stored),
        ("log", end.map(|end| format!("ends at {end}"))),
    ];
    for (label, line) in lines {
        if let Some(line) = line {
            println!("  {label}: {line}");
        }
    }
    troubles.iter().for_each(|trouble| eprintln!("error: {trouble}"));
    Ok(state.verdict)
}

/// What the server shows.
fn shown(
    settings: &MysqlSettings,
    survey: Option<&Survey<'_>>,
    record: Option<&PositionRecord>,
    troubles: &[String],
) -> State {
    let Some(survey) = survey else {
        let detail = troubles.join("; ");
        return State::seen(Verdict::NotReady, "unknown", "source_unreachable", detail, "");
    };
    match record.map_or(Ok(()), |record| survey.judge(record)) {
        Err(SourceError::Terminal(terminal)) => State::terminal(&terminal),
        Err(error) => {
            let hint = error.hint().unwrap_or_default();
            State::seen(Verdict::NotReady, "stopped", error.reason().code(), crate::chain(&error), hint)
        }
        Ok(()) => match survey.holder() {
            Some(holder) => {
                let detail = format!("{holder}; its listener does not answer here");
                State::seen(Verdict::Done, "streaming", "streaming", detail, "")
            }
            None => {
                let hint = format!("start it: {}", settings.command("run"));
                let detail = "nobody holds the instance's lock".to_owned();
                State::seen(Verdict::NotReady, "stopped", "not_running", detail, &hint)
            }
        },
    }
}

/// Refuses while an instance publishes. A relay in a terminal state does not; whether there is one is returned.
pub(super) async fn refuse_while_active(config: &Config, survey: &Survey<'_>) -> anyhow::Result<bool> {
    let relay = ask_relay(config).await;
    let is_terminal = relay.as_ref().is_some_and(|relay| text(relay, "phase") == "terminal");
    if !is_terminal && (survey.holder().is_some() || relay.is_some()) {
        let words = survey.holder().unwrap_or_else(|| "an instance of this name runs".to_owned());
        return Err(obstacle(words, "stop the relay first, and its standbys"));
    }
    Ok(is_terminal)
}

/// Makes the relay go on at `from`.
pub(super) async fn resume(
    config: &Config,
    settings: &MysqlSettings,
    from: ResumeFrom,
    yes: bool,
) -> anyhow::Result<Verdict> {
    if from == ResumeFrom::Table && settings.start != Start::Table {
        let option = format!("source.{}.start", settings.flavour().option());
        return Err(refusal(
            format!("--from table needs {option} = \"table\", and it is \"now\""),
            "change the option, or name another place to go on from",
        ));
    }
    let mut store = PositionStore::new(config).map_err(sink_error)?;
    // before the server is asked, which goes on meanwhile
    let record = store.peek(&config.name).await.map_err(sink_error)?;
    let mut survey = Survey::take(settings).await.map_err(source_error)?;
    let is_terminal = refuse_while_active(config, &survey).await?;
    show(&survey, record.as_ref());
    let position = match &from {
        ResumeFrom::Now => {
            survey.wait_for_decisions().await.map_err(source_error)?;
            Some(survey.end())
        }
        ResumeFrom::Table => None,
        ResumeFrom::Position(position) => {
            let Some(place) = position.binlog() else {
                let hint = "name one as status and /readyz show it: GTIDs@FILE:OFFSET";
                return Err(refusal(format!("{position} is no position of a binary log"), hint));
            };
            Some(survey.serves(place).map_err(source_error)?)
        }
    };
    let published = record.as_ref().map_or_else(String::new, |record| format!(" behind {} and", record.position));
    match &position {
        Some(position) => println!(
            "publishing will begin at {position}: what was committed{published} before that and is not published yet will \
             not be"
        ),
        None => println!(
            "the stored position will be given up: the next start publishes all rows that stand in the table, also those \
             that were published before, and goes on from there; rows that were deleted are not published"
        ),
    }
    if !agreed("Go on?", yes).await? {
        return Ok(Verdict::NotReady);
    }
    // one that was started meanwhile is in the way too
    refuse_while_active(config, &Survey::take(settings).await.map_err(source_error)?).await?;
    match position {
        None => store.remove(&config.name).await.map_err(sink_error)?,
        Some(position) => write_position(&mut store, config, &survey, record.as_ref(), position).await?,
    }
    if is_terminal {
        println!("the relay that runs stays in its terminal state: start it again");
    } else {
        println!("start the relay: {}", settings.command("run"));
    }
    Ok(Verdict::Done)
}

/// Stores `position` as the place to go on from; `record` is what was stored before.
pub(super) async fn write_position(
    store: &mut PositionStore,
    config: &Config,
    survey: &Survey<'_>,
    record: Option<&PositionRecord>,
    position: Position,
) -> anyhow::Result<()> {
    let record = PositionRecord {
        version: FORMAT,
        instance: config.name.clone(),
        generation: record.map_or(0, |record| record.generation) + 1,
        source: survey.identity(),
        position: position.clone(),
        verified: position,
    };
    store.write(&record).await.map_err(sink_error)?;
    println!("wrote position {}, generation {}", record.position, record.generation);
    Ok(())
}

/// Shows where things stand, and the gap.
fn show(survey: &Survey<'_>, record: Option<&PositionRecord>) {
    println!("server: {}; its log ends at {}", survey.identity().server(), survey.end());
    let Some(record) = record else {
        println!("position: nothing is stored");
        return;
    };
    println!("position: everything before {} was published (generation {})", record.position, record.generation);
    match survey.judge(record) {
        Err(SourceError::Terminal(terminal)) => {
            println!("state: {} ({})", terminal.message, terminal.reason);
            if let Some(gap) = &terminal.gap {
                println!("events may be missing: {gap}");
            }
        }
        Err(error) => println!("state: {}", crate::chain(&error)),
        Ok(()) => println!("state: the relay would go on there by itself, and nothing is missing"),
    }
}
