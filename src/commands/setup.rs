//! `outboxd setup`: makes, or prints, what the instance needs in the database.

use crate::commands::{ConfiguredSource, Verdict, configured_source, refusal, source_error};
use crate::config::secret::Secret;
use crate::config::{Config, PostgresConfig};
use crate::source::mysql;
use crate::source::mysql::settings::MysqlSettings;
use crate::source::postgres::settings::{ConnectSettings, PostgresSettings};
use crate::source::postgres::setup::{Setup, script, steps};
use crate::source::setup::Outcome;

/// Makes account, rights and publication, and prints what was done; with `print` only the SQL for it. `admin` is who may
/// do it, if the configured user may not.
///
/// # Errors
/// The server cannot be reached or refuses the login; a table is missing.
pub async fn setup(config: Config, print: bool, admin: Option<Secret>) -> anyhow::Result<Verdict> {
    match configured_source(&config)? {
        ConfiguredSource::Postgres(settings) if print && !settings.patterns.is_empty() => {
            let hint = "leave out --print, so that the tables can be looked up, or name the tables";
            Err(refusal("patterns in option \"outbox.tables\" cannot be printed without asking the server", hint))
        }
        ConfiguredSource::Postgres(settings) if print => {
            print!("{}", script(&settings));
            Ok(Verdict::Done)
        }
        ConfiguredSource::Postgres(settings) => on_postgres(&config, &settings, admin).await,
        ConfiguredSource::Mysql(settings) if print => {
            print!("{}", mysql::setup::script(&settings));
            Ok(Verdict::Done)
        }
        ConfiguredSource::Mysql(settings) => on_mysql(&settings, admin).await,
    }
}

async fn on_postgres(config: &Config, settings: &PostgresSettings, admin: Option<Secret>) -> anyhow::Result<Verdict> {
    let who = who(config, settings, admin)?;
    let setup = Setup::connect(settings, &who).await.map_err(source_error)?;
    println!("database \"{}\" at {}, as user \"{}\"", who.database, who.address, who.user);
    let mut denied = Vec::new();
    for step in steps(&setup.settings) {
        let outcome = setup.run(&step).await.map_err(source_error)?;
        tell(&step.what, &outcome);
        match outcome {
            Outcome::Made if step.statement.starts_with("CREATE ROLE") => {
                println!("          it has no password: \\password {}", settings.connect.user);
            }
            Outcome::Denied(_) => {
                let is_publication = step.statement.starts_with("CREATE PUBLICATION");
                denied.push(step.statement);
                if is_publication {
                    // what follows is in it
                    break;
                }
            }
            _ => {}
        }
    }
    if denied.is_empty() {
        println!("done; the relay makes the slot. Next: {}", settings.names.command("check"));
        return Ok(Verdict::Done);
    }
    Ok(refused(&who.user, &format!("in database \"{}\"", who.database), &denied))
}

async fn on_mysql(settings: &MysqlSettings, admin: Option<Secret>) -> anyhow::Result<Verdict> {
    let mut setup = mysql::setup::Setup::connect(settings, admin).await.map_err(source_error)?;
    println!("{}", setup.place());
    let mut denied = Vec::new();
    for step in setup.steps() {
        let outcome = setup.run(&step).await.map_err(source_error)?;
        tell(&step.what, &outcome);
        if let Outcome::Denied(_) = outcome {
            denied.push(step.statement);
        }
    }
    println!("note: sessions that are open keep the variables that they have; {}", setup.remark());
    if denied.is_empty() {
        println!("done. Next: {}", settings.command("check"));
        return Ok(Verdict::Done);
    }
    Ok(refused(setup.user(), "on the server", &denied))
}

fn tell(what: &str, outcome: &Outcome) {
    match outcome {
        Outcome::WasThere => println!("  there:  {what}"),
        Outcome::Made => println!("  made:   {what}"),
        Outcome::Denied(words) => println!("  DENIED: {what}: {words}"),
    }
}

/// Tells what is left for an administrator.
fn refused(user: &str, place: &str, statements: &[String]) -> Verdict {
    eprintln!(
        "error: user \"{user}\" may not make everything\nhint: have an administrator run this {place}, or give --admin-url:"
    );
    for statement in statements {
        eprintln!("    {statement}");
    }
    Verdict::Findings
}

/// Who makes it: the administrator's address and login, in the instance's database.
fn who(config: &Config, settings: &PostgresSettings, admin: Option<Secret>) -> anyhow::Result<ConnectSettings> {
    let Some(url) = admin else { return Ok(settings.connect.clone()) };
    let postgres = PostgresConfig { url, ..config.source.postgres.clone().unwrap_or_default() };
    let postgres = PostgresConfig { password_file: None, ..postgres };
    let mut who = ConnectSettings::new(&postgres, &settings.connect.application_name)
        .map_err(|error| refusal(error.to_string().replace("source.postgres.url", "--admin-url"), "correct the URL"))?;
    who.database.clone_from(&settings.connect.database);
    Ok(who)
}
