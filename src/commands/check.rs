//! `outboxd check`: what would keep the relay from working, on both sides, all at once.

use crate::commands::{Verdict, postgres_settings};
use crate::config::Config;
use crate::finding::{Finding, Report};
use crate::sink::SinkError;
use crate::sink::kafka;
use crate::sink::positions::PositionRecord;
use crate::sink::store::PositionStore;
use crate::source::postgres::check::{Check, Published, findings_of};
use crate::source::postgres::settings::PostgresSettings;
use crate::source::postgres::survey::Survey;

/// Connects to both sides, and prints what is there and every finding. Changes nothing.
///
/// # Errors
/// The configuration has no source; everything else is a finding.
pub async fn check(config: Config) -> anyhow::Result<Verdict> {
    let settings = postgres_settings(&config, "check")?;
    let report = look(&config, &settings).await;
    for fact in &report.facts {
        println!("{fact}");
    }
    for finding in &report.findings {
        eprint!("{finding}");
    }
    let errors = report.findings.iter().filter(|finding| finding.is_error()).count();
    let warnings = report.findings.len() - errors;
    println!("{}", summary(errors, warnings));
    Ok(if errors == 0 { Verdict::Done } else { Verdict::Findings })
}

fn summary(errors: usize, warnings: usize) -> String {
    let count = |number: usize, word: &str| match number {
        0 => None,
        1 => Some(format!("1 {word}")),
        _ => Some(format!("{number} {word}s")),
    };
    let parts: Vec<String> = [count(errors, "error"), count(warnings, "warning")].into_iter().flatten().collect();
    if parts.is_empty() { "nothing found that is wrong".to_owned() } else { parts.join(", ") }
}

async fn look(config: &Config, settings: &PostgresSettings) -> Report {
    // the server first: the position is written before the slot moves, so a position that is read later is not behind it
    let survey = Survey::take(settings).await;
    let mut store = PositionStore::new(config);
    let peeked = match &mut store {
        Ok(store) => Some(store.peek(&config.name).await),
        Err(_) => None,
    };
    let mut report = Report::default();
    let mut values = Vec::new();
    match &survey {
        Err(error) => findings_of(error).into_iter().for_each(|finding| report.add(finding)),
        Ok(survey) => {
            let check = Check::new(config, survey);
            report.extend(check.run(published(peeked.as_ref())).await);
            values = check.routing_values().await;
        }
    }
    match (&store, &peeked) {
        (Err(error), _) => add_all(&mut report, kafka::findings_of(error)),
        (Ok(PositionStore::Kafka(sink)), Some(Ok(_) | Err(SinkError::Configuration { .. }))) => {
            report.extend(sink.check(&config.record.topic, &values).await);
        }
        _ => {}
    }
    if let Some(Err(error)) = &peeked {
        add_all(&mut report, kafka::findings_of(error));
    }
    if let (Ok(PositionStore::File(_)), Some(stdout)) = (&store, &config.sink.stdout) {
        report.fact(format!("sink: standard output, with the position in \"{}\"", stdout.positions_file.display()));
    }
    report
}

fn add_all(report: &mut Report, findings: Vec<Finding>) {
    findings.into_iter().for_each(|finding| report.add(finding));
}

fn published(peeked: Option<&Result<Option<PositionRecord>, SinkError>>) -> Published<'_> {
    match peeked {
        Some(Ok(Some(record))) => Published::Upto(record),
        Some(Ok(None)) => Published::Nothing,
        Some(Err(_)) | None => Published::Unknown,
    }
}
