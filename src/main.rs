//! The program: arguments, log, runtime, exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use outboxd::cli::{
    self, Cli, Command, ConfigCommand, DropSlotOptions, Options, ResumeOptions, RunOptions, SetupOptions, StatusOptions,
};
use outboxd::commands::run::{Refusal, run};
use outboxd::commands::{self, Obstacle, Verdict};
use outboxd::config::{Config, ConfigError, SinkChecks};
use outboxd::relay::Outcome;
use outboxd::sink::kafka::options::option_finding;

/// What is configured cannot work.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let checks = SinkChecks { option: option_finding, ..SinkChecks::default() };
    let load = |options: &Options| Config::load_with(options.config.as_deref(), &options.overrides(), &checks);
    match Cli::parse().command {
        Command::Run(RunOptions { dry_run: true, options }) => printed(commands::config::dry_run(Config::load_all(
            options.config.as_deref(),
            &options.overrides(),
            &checks,
        ))),
        Command::Run(RunOptions { options, .. }) => load(&options).map_or_else(|error| refuse(&error), start),
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo(&options),
        Command::Check(options) => act(load(&options), &options, commands::check::check),
        Command::Setup(SetupOptions { print, admin_url, options }) => {
            act(load(&options), &options, |config| commands::setup::setup(config, print, admin_url))
        }
        Command::Status(StatusOptions { json, options }) => {
            act(load(&options), &options, |config| commands::status::status(config, json))
        }
        Command::Resume(ResumeOptions { from, yes, options }) => {
            act(load(&options), &options, |config| commands::resume::resume(config, from, yes))
        }
        Command::DropSlot(DropSlotOptions { yes, options }) => {
            act(load(&options), &options, |config| commands::drop_slot::drop_slot(config, yes))
        }
        Command::Config { command: ConfigCommand::Check(options) } => match load(&options) {
            Ok(config) => {
                config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
                print!("{}", cli::check_report(&config));
                ExitCode::SUCCESS
            }
            Err(error) => refuse(&error),
        },
        Command::Config { command: ConfigCommand::Convert(options) } => {
            let loaded = Config::load_all(Some(&options.file), &options.overrides(), &checks);
            printed(commands::config::convert(loaded))
        }
    }
}

/// Prints what a command has to say, and why it refuses, if it does.
fn printed((text, error): (String, Option<ConfigError>)) -> ExitCode {
    print!("{text}");
    error.map_or(ExitCode::SUCCESS, |error| refuse(&error))
}

/// Runs a command that a person waits for. It logs only if a level was asked for: what it has to say it prints.
fn act<F: Future<Output = anyhow::Result<Verdict>>>(
    loaded: Result<Config, ConfigError>,
    options: &Options,
    command: impl FnOnce(Config) -> F,
) -> ExitCode {
    let config = match loaded {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    if options.log_level.is_some()
        && let Err(error) = outboxd::logging::init(&config.log)
    {
        eprintln!("error: {}", outboxd::chain(&error));
        return ExitCode::from(REFUSED);
    }
    match block_on(command(config)) {
        Ok(verdict) => ExitCode::from(verdict.code()),
        Err(error) => failed(&error),
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
        Ok(Outcome::Terminal) => ExitCode::from(Verdict::Terminal.code()),
        Ok(Outcome::Refused { message, hint }) => {
            cli::print_findings(&message, &hint);
            ExitCode::from(REFUSED)
        }
        Err(error) => failed(&error),
    }
}

/// Everything but a proof is a failure.
#[cfg(feature = "demo")]
fn demo(options: &cli::DemoOptions) -> ExitCode {
    let level = if options.verbose { "info" } else { "warn" };
    let log = outboxd::config::LogConfig { level: level.to_owned(), ..outboxd::config::LogConfig::default() };
    let demo = async { outboxd::demo::demo(options).await };
    match outboxd::logging::init(&log).map_err(anyhow::Error::from).and_then(|()| block_on(demo)) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => {
            failed(&error);
        }
    }
    ExitCode::FAILURE
}

/// Says why, and what to do about it.
fn failed(error: &anyhow::Error) -> ExitCode {
    if let Some(Refusal { message, hint }) = error.downcast_ref() {
        cli::print_findings(message, hint);
        return ExitCode::from(REFUSED);
    }
    match error.downcast_ref() {
        Some(Obstacle { message, hint }) => cli::print_findings(message, hint),
        None => eprintln!("error: {error:#}"),
    }
    ExitCode::FAILURE
}

/// Runs on this thread: the relay is one loop, and a second thread would only add wake-ups between the two.
fn block_on<T>(task: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(task);
    // a look-up at a broker that is away would hold up the end
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}
