//! The program: arguments, log, runtime, exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use outboxd::cli::{self, Cli, Command, ConfigCommand};
use outboxd::commands::run::{Refusal, run};
use outboxd::config::{Config, ConfigError, SinkChecks};
use outboxd::relay::Outcome;
use outboxd::sink::kafka::options::option_finding;

/// What is configured cannot work.
const REFUSED: u8 = 2;
/// The source needs a person's decision.
const TERMINAL: u8 = 3;

fn main() -> ExitCode {
    let checks = SinkChecks { option: option_finding, ..SinkChecks::default() };
    let load = |options: &cli::Options| Config::load_with(options.config.as_deref(), &options.overrides(), &checks);
    match Cli::parse().command {
        Command::Run(options) => load(&options).map_or_else(|error| refuse(&error), start),
        Command::Config { command: ConfigCommand::Check(options) } => match load(&options) {
            Ok(config) => {
                print!("{}", cli::check_report(&config));
                ExitCode::SUCCESS
            }
            Err(error) => refuse(&error),
        },
    }
}

fn refuse(error: &ConfigError) -> ExitCode {
    cli::print_error(error);
    ExitCode::from(REFUSED)
}

fn start(config: Config) -> ExitCode {
    if let Err(error) = outboxd::logging::init(&config.log) {
        eprintln!("error: {}", outboxd::chain(&error));
        return ExitCode::from(REFUSED);
    }
    match block_on(config) {
        Ok(Outcome::Stopped) => ExitCode::SUCCESS,
        Ok(Outcome::Terminal) => ExitCode::from(TERMINAL),
        Ok(Outcome::Refused { message, hint }) => {
            cli::print_findings(&message, &hint);
            ExitCode::from(REFUSED)
        }
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(Refusal { message, hint }) => {
                cli::print_findings(message, hint);
                ExitCode::from(REFUSED)
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

/// Runs the relay on this thread: it is one loop, and a second thread would only add wake-ups between the two.
fn block_on(config: Config) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(config));
    // a look-up at a broker that is away would hold up the end
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}
