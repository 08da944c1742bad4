//! `outboxd setup`: makes, or prints, what the instance needs in the database.

use crate::commands::{Verdict, postgres_settings, refusal, source_error};
use crate::config::secret::Secret;
use crate::config::{Config, PostgresConfig};
use crate::source::postgres::settings::{ConnectSettings, PostgresSettings};
use crate::source::postgres::setup::{Outcome, Setup, script, steps};

/// Makes role, rights and publication, and prints what was done; with `print` only the SQL for it. `admin` is who may do
/// it, if the configured user may not.
///
/// # Errors
/// The server cannot be reached or refuses the login; a table is missing.
pub async fn setup(config: Config, print: bool, admin: Option<Secret>) -> anyhow::Result<Verdict> {
    let settings = postgres_settings(&config, "setup")?;
    if print {
        print!("{}", script(&settings));
        return Ok(Verdict::Done);
    }
    let who = who(&config, &settings, admin)?;
    let setup = Setup::connect(&settings, &who).await.map_err(source_error)?;
    println!("database \"{}\" at {}, as user \"{}\"", who.database, who.address, who.user);
    let mut denied = Vec::new();
    for step in steps(&settings) {
        match setup.run(&step).await.map_err(source_error)? {
            Outcome::WasThere => println!("  there:  {}", step.what),
            Outcome::Made => {
                println!("  made:   {}", step.what);
                if step.statement.starts_with("CREATE ROLE") {
                    println!("          it has no password: \\password {}", settings.connect.user);
                }
            }
            Outcome::Denied(words) => {
                println!("  DENIED: {}: {words}", step.what);
                let is_publication = step.statement.starts_with("CREATE PUBLICATION");
                denied.push(step.statement);
                if is_publication {
                    // what follows is in it
                    break;
                }
            }
        }
    }
    if denied.is_empty() {
        println!("done; the relay makes the slot. Next: {}", settings.names.command("check"));
        return Ok(Verdict::Done);
    }
    eprintln!(
        "error: user \"{}\" may not make everything\nhint: have an administrator run this in database \"{}\", or give \
         --admin-url:",
        who.user, who.database
    );
    for statement in &denied {
        eprintln!("    {statement}");
    }
    Ok(Verdict::Findings)
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
