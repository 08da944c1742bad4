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
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo(&options),
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
    match block_on(run(config)) {
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

/// Everything but a proof is a failure.
#[cfg(feature = "demo")]
fn demo(options: &cli::DemoOptions) -> ExitCode {
    let level = if options.verbose { "info" } else { "warn" };
    let log = outboxd::config::LogConfig { level: level.to_owned(), ..outboxd::config::LogConfig::default() };
    let demo = async { outboxd::demo::demo(options).await };
    let outcome = outboxd::logging::init(&log).map_err(anyhow::Error::from).and_then(|()| block_on(demo));
    match outcome {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(Refusal { message, hint }) => cli::print_findings(message, hint),
            None => eprintln!("error: {error:#}"),
        },
    }
    ExitCode::FAILURE
}

/// Runs on this thread: the relay is one loop, and a second thread would only add wake-ups between the two.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(future);
    // a look-up at a broker that is away would hold up the end
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}
