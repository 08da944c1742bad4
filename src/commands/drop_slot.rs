//! `outboxd drop-slot`: gives up an instance, so that its slot no longer holds back log.

use crate::commands::{Verdict, agreed, postgres_settings, refuse_while_active, sink_error, source_error};
use crate::config::Config;
use crate::config::names::quote_identifier;
use crate::finding::bytes;
use crate::sink::store::PositionStore;
use crate::source::postgres::survey::Survey;

/// Says what is lost, asks, drops the slot, and removes the position record. Refuses while an instance is active.
///
/// # Errors
/// What stands in the way.
pub async fn drop_slot(config: Config, yes: bool) -> anyhow::Result<Verdict> {
    let settings = postgres_settings(&config, "drop-slot")?;
    let slot_name = &settings.names.slot;
    let mut store = PositionStore::new(&config).map_err(sink_error)?;
    let survey = Survey::take(&settings).await.map_err(source_error)?;
    refuse_while_active(&config, &survey).await?;
    let record = store.peek(&config.name).await.map_err(sink_error)?;
    let slot = survey.slot();
    if slot.is_none() && record.is_none() {
        println!("there is no slot \"{slot_name}\" and no position of instance \"{}\": nothing to do", config.name);
        return Ok(Verdict::Done);
    }
    match &slot {
        Some(slot) => {
            survey.is_ours().map_err(source_error)?;
            let confirmed = slot.confirmed.unwrap_or_default();
            let behind = survey.wal_end().bytes_since(confirmed);
            let held = slot.retained_bytes.map_or_else(String::new, |held| format!("; it holds back {}", bytes(held)));
            println!(
                "slot \"{slot_name}\" is at {confirmed}, {} before the end of the log ({}){held}",
                bytes(behind),
                survey.wal_end()
            );
            println!("events committed in these {} that were not published will not be published", bytes(behind));
        }
        None => println!("slot \"{slot_name}\" does not exist"),
    }
    match &record {
        Some(record) => println!("position {} of instance \"{}\" will be forgotten", record.position, config.name),
        None => println!("no position of instance \"{}\" is stored", config.name),
    }
    if !agreed("Give them up?", yes).await? {
        return Ok(Verdict::NotReady);
    }
    if slot.is_some() {
        survey.drop_slot().await.map_err(source_error)?;
        println!("dropped slot \"{slot_name}\"");
    }
    if record.is_some() {
        store.remove(&config.name).await.map_err(sink_error)?;
        println!("removed the position of instance \"{}\"", config.name);
    }
    if survey.has_publication() {
        let name = &settings.names.publication;
        println!("publication \"{name}\" is left; if nobody needs it: DROP PUBLICATION {};", quote_identifier(name));
    }
    Ok(Verdict::Done)
}
