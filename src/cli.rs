//! The command line. Help texts live only here; each flag of `run` has an environment variable of the same meaning.

use std::path::PathBuf;

use clap::builder::{FalseyValueParser, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::commands::resume::ResumeFrom;
use crate::config::secret::Secret;
use crate::config::{Config, ConfigError, LogFormat, Overrides};

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(
    name = "outboxd",
    version,
    about = "Publishes the rows of a PostgreSQL outbox table to Kafka, by reading the write-ahead log",
    after_help = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 the source needs a person's decision.",
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Publish until asked to stop
    #[command(after_help = "\
A first run needs no file:

  outboxd run --source-url postgres://outboxd@localhost/shop --bootstrap-servers localhost:9092 --table public.outbox

Flags win over environment variables, and both win over the file. While it runs, http://127.0.0.1:9464/ shows its state.

A Debezium connector's JSON is taken as it is, with what stands in the Connect worker's file beside it:

  outboxd run --config connector.json --worker-config connect-distributed.properties --dry-run")]
    Run(RunOptions),
    /// Show the whole way on this machine: a shop, PostgreSQL, outboxd, a broker, a consumer
    #[cfg(feature = "demo")]
    #[command(after_help = "\
A real PostgreSQL is started in a temporary folder: the one of this machine, or else one from Maven Central, fetched once
into the cache (XDG_CACHE_HOME, ~/.cache/outboxd; /var/cache/outboxd for root). The broker is a part of this process.

Exit codes: 0 proven that all that was committed arrived, once and in order, and nothing else; 1 not proven.")]
    Demo(DemoOptions),
    /// Look at both sides and list everything that is wrong, each with what mends it
    #[command(after_help = "\
Connects to PostgreSQL and Kafka and changes nothing. What is there goes to standard output; findings go to standard error, two
lines each: what is wrong, and the statement or command that mends it. SQL in a hint can be typed as it is.

The exit code is 0 if there is no error (warnings are no errors), else 2.")]
    Check(Options),
    /// Make the publication, the role and its rights; may be run twice
    #[command(after_help = "\
Makes what is missing and prints what it did. A role that is new has no password. The table is the application's; the slot is
made by the relay, since it has to be younger than the publication.

The exit code is 0 if everything is there, 2 if a right to make it is lacking: the SQL for an administrator is printed then.")]
    Setup(SetupOptions),
    /// Show where the instance stands: its state, slot, stored position, lag
    #[command(after_help = "\
Asks the relay's own listener, if it answers at http.listen, and the servers.

The exit code is 0 if the instance publishes or stands by, 3 if only a person can decide, else 1.")]
    Status(StatusOptions),
    /// Go on after a state in which events may be missing
    #[command(after_help = "\
Shows the gap, asks, and stores from where the relay may go on. Stop the relay and its standbys first. What is missing is not
published by this: have the application write those events again.

  --from now       drops the slot if there is one, makes it again, and goes on with what is committed from then on
  --from POSITION  (such as 16/B374D848) goes on there, if the slot can still bring everything from there on; events between
                   the slot's position and this one are left out
  --from table     begins again with the rows that stand in the table, as a first start does; needs start = table")]
    Resume(ResumeOptions),
    /// Take over from a Debezium connector that has stopped, without its last minute once more
    #[command(after_help = "\
Shows the connector's slot and offset, asks, moves the slot behind the last transaction that the connector has published whole
(lsn_commit), and stores that position. Not needed: without it the relay goes on where the slot stands, and what the connector
has published since its last flush comes again. Stop the connector first.

MySQL and MariaDB have no slot, so there it is needed before the first start: the place in the log that the connector's offset
names becomes the relay's position.

The offset is read from Connect's offsets topic, which the worker's file or --offsets-topic names, or from a file:

  curl http://CONNECT:8083/connectors/NAME/offsets > offsets.json")]
    Takeover(TakeoverOptions),
    /// Give up the instance: drop its slot and its stored position
    #[command(after_help = "\
Says what is lost, and asks. Refuses while the slot is in use. The publication is left.")]
    DropSlot(DropSlotOptions),
    /// Work with the configuration
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Print the configuration as it would be used, and end; of a connector also what becomes of each property
    #[arg(long)]
    pub dry_run: bool,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub options: Options,
}

/// Options of `setup`.
#[derive(Debug, Args)]
pub struct SetupOptions {
    /// Print the SQL instead of running it; connects to nothing
    #[arg(long)]
    pub print: bool,

    /// Connect as somebody who may make them: postgres://admin@host:5432/database, mysql://root@host:3306
    #[arg(long, env = "OUTBOXD_ADMIN_URL", value_name = "URL", hide_env_values = true, value_parser = secret())]
    pub admin_url: Option<Secret>,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub options: Options,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub options: Options,
}

/// Options of `resume`.
#[derive(Debug, Args)]
pub struct ResumeOptions {
    /// Where to go on: now, table, or a position such as 16/B374D848
    #[arg(long, value_name = "now|table|POSITION")]
    pub from: ResumeFrom,

    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub options: Options,
}

/// Options of `takeover`.
#[derive(Debug, Args)]
pub struct TakeoverOptions {
    /// File with the answer of Connect's REST interface about the connector's offsets
    #[arg(long, value_name = "FILE")]
    pub offsets: Option<PathBuf>,

    /// Connect's offsets topic [default: offset.storage.topic of the worker's file]
    #[arg(long, value_name = "TOPIC", conflicts_with = "offsets")]
    pub offsets_topic: Option<String>,

    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub options: Options,
}

/// Options of `drop-slot`.
#[derive(Debug, Args)]
pub struct DropSlotOptions {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub options: Options,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Load and validate the configuration, without connecting to anything
    #[command(after_help = "Every finding is shown, each with a hint. The exit code is 0 if there is none, else 2.")]
    Check(Options),
    /// Write the configuration of a Debezium connector as TOML
    #[command(after_help = "\
The TOML goes to standard output. A password that stands in the connector does not: a variable takes its place, which the
comment before it names. The exit code is 2 if something in the connector cannot be carried over.")]
    Convert(ConvertOptions),
}

/// Options of `config convert`.
#[derive(Debug, Args)]
pub struct ConvertOptions {
    /// The connector's file: JSON or .properties, also of Debezium Server
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What goes with the connector.
    #[command(flatten)]
    pub connector: ConnectorOptions,

    /// Kafka brokers to begin with: host:port, several separated by commas
    #[arg(long, env = "OUTBOXD_BOOTSTRAP_SERVERS", value_name = "SERVERS")]
    pub bootstrap_servers: Option<String>,

    /// Outbox table as schema.table; may be repeated, or hold several separated by commas
    #[arg(long = "table", env = "OUTBOXD_TABLE", value_name = "TABLE")]
    pub tables: Vec<String>,
}

impl ConvertOptions {
    /// What the flags and their environment variables say, for [`Config::load_all`].
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        let base = Overrides {
            bootstrap_servers: self.bootstrap_servers.clone(),
            tables: self.tables.clone(),
            ..Overrides::default()
        };
        self.connector.over(base)
    }
}

/// What the demo does.
#[cfg(feature = "demo")]
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// How long the shop sells
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,

    /// Leave everything running until Ctrl-C, and print how to connect
    #[arg(long)]
    pub keep: bool,

    /// Server to use in place of one of its own, in a database of its own: postgres://user:password@host/database
    #[arg(long, value_name = "URL", value_parser = secret(), conflicts_with = "postgres_bin")]
    pub postgres_url: Option<Secret>,

    /// Folder of the programs initdb, pg_ctl and postgres to use
    #[arg(long, value_name = "FOLDER")]
    pub postgres_bin: Option<PathBuf>,

    /// Show the relay's log, on standard error, from level info on
    #[arg(long)]
    pub verbose: bool,
}

/// Where the configuration comes from.
#[derive(Debug, Default, Args)]
pub struct Options {
    /// Configuration file (TOML)
    #[arg(long, short, env = "OUTBOXD_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,

    /// PostgreSQL to read from: postgres://user@host:5432/database?sslmode=verify-full
    ///
    /// A password in it is seen by whoever may list processes: give the URL by the environment variable then, or use
    /// the option source.postgres.password-file.
    #[arg(long, env = "OUTBOXD_SOURCE_URL", value_name = "URL", hide_env_values = true, value_parser = secret())]
    pub source_url: Option<Secret>,

    /// Kafka brokers to begin with: host:port, several separated by commas
    #[arg(long, env = "OUTBOXD_BOOTSTRAP_SERVERS", value_name = "SERVERS")]
    pub bootstrap_servers: Option<String>,

    /// Outbox table as schema.table; may be repeated, or hold several separated by commas [default: public.outbox]
    #[arg(long = "table", env = "OUTBOXD_TABLE", value_name = "TABLE")]
    pub tables: Vec<String>,

    /// Name of this instance: slot and publication are called outboxd_NAME by default [default: outbox]
    #[arg(long, env = "OUTBOXD_NAME", value_name = "NAME")]
    pub name: Option<String>,

    /// Address of /metrics, /healthz, /readyz and the state page; empty for none [default: 127.0.0.1:9464]
    #[arg(long, env = "OUTBOXD_HTTP_LISTEN", value_name = "ADDRESS:PORT")]
    pub http_listen: Option<String>,

    /// Form of the log on standard error [default: text]
    #[arg(long, env = "OUTBOXD_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Level of the log, or a filter such as info,outboxd::sink=debug [default: info]
    #[arg(long, env = "OUTBOXD_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Print records to standard output, one JSON line each, instead of sending them to Kafka
    #[arg(long, env = "OUTBOXD_STDOUT", value_parser = FalseyValueParser::new())]
    pub stdout: bool,

    /// What goes with a connector.
    #[command(flatten)]
    pub connector: ConnectorOptions,
}

/// What goes with the file of a Debezium connector.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectorOptions {
    /// Properties file of the Kafka Connect worker, beside a connector's JSON: brokers, converters, producer settings
    #[arg(long, env = "OUTBOXD_WORKER_CONFIG", value_name = "FILE")]
    pub worker_config: Option<PathBuf>,

    /// Bytes of the keys [default: string; with a connector what it or the worker's file says]
    #[arg(long, env = "OUTBOXD_KEY_FORMAT", value_name = "FORMAT", value_parser = words("record.key-format"))]
    pub key_format: Option<String>,

    /// Bytes of the values [default: string; with a connector what it or the worker's file says]
    #[arg(long, env = "OUTBOXD_VALUE_FORMAT", value_name = "FORMAT", value_parser = words("record.value-format"))]
    pub value_format: Option<String>,

    /// Go without what a connector asks for and is not available, with a warning, where that is no promise about data
    #[arg(long, env = "OUTBOXD_ALLOW_UNSUPPORTED", value_parser = FalseyValueParser::new())]
    pub allow_unsupported: bool,
}

impl ConnectorOptions {
    fn over(&self, base: Overrides) -> Overrides {
        Overrides {
            worker_config: self.worker_config.clone(),
            key_format: self.key_format.clone(),
            value_format: self.value_format.clone(),
            allow_unsupported: self.allow_unsupported,
            ..base
        }
    }
}

/// The words of an option.
fn words(option: &str) -> PossibleValuesParser {
    let kind = crate::config::options::find(option).map(|option| option.kind).unwrap_or_default();
    PossibleValuesParser::new(kind.split(", "))
}

fn secret() -> impl TypedValueParser<Value = Secret> {
    StringValueParser::new().map(Secret::new)
}

impl Options {
    /// What the flags and their environment variables say, for [`Config::load`].
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        self.connector.over(Overrides {
            name: self.name.clone(),
            source_url: self.source_url.clone(),
            bootstrap_servers: self.bootstrap_servers.clone(),
            tables: self.tables.clone(),
            http_listen: self.http_listen.clone(),
            log_format: self.log_format,
            log_level: self.log_level.clone(),
            stdout: self.stdout,
            ..Overrides::default()
        })
    }
}

/// Prints to standard error why a configuration is refused: two lines, `error` and `hint`, for each finding.
pub fn print_error(error: &ConfigError) {
    eprint!("{}", error_text(error));
}

/// Prints to standard error what keeps the relay from working. Both texts have a line for each finding.
pub fn print_findings(message: &str, hint: &str) {
    let mut hints = hint.lines();
    for line in message.lines() {
        eprintln!("error: {line}");
        if let Some(hint) = hints.next().filter(|hint| !hint.is_empty()) {
            eprintln!("hint: {hint}");
        }
    }
}

/// The text of [`print_error`].
#[must_use]
pub fn error_text(error: &ConfigError) -> String {
    let mut text = String::new();
    for (problem, hint) in error.lines() {
        text.push_str(&format!("error: {problem}\n"));
        if let Some(hint) = hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
    }
    text
}

/// What `config check` prints about a configuration that is fine.
#[must_use]
pub fn check_report(config: &Config) -> String {
    let mut lines = vec!["configuration is valid".to_owned(), format!("name: {}", config.name)];
    if let Some(postgres) = &config.source.postgres {
        lines.push(format!("slot: {}", postgres.slot(&config.name)));
        lines.push(format!("publication: {}", postgres.publication(&config.name)));
    }
    lines.push(format!("tables: {}", config.outbox.tables.join(", ")));
    lines.push(format!("topic: {}", config.record.topic));
    if let Some(kafka) = &config.sink.kafka {
        lines.push(format!("brokers: {}", kafka.bootstrap_servers));
        lines.push(format!("positions topic: {}", kafka.positions_topic));
    }
    if let Some(stdout) = &config.sink.stdout {
        lines.push("sink: standard output".to_owned());
        lines.push(format!("positions file: {}", stdout.positions_file.display()));
    }
    let listen = &config.http.listen;
    lines.push(format!("http: {}", if listen.is_empty() { "off" } else { listen }));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(arguments: &[&str]) -> Options {
        let all = ["outboxd", "run"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Run(options) => options.options,
            _ => panic!("not run"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_first_run_of_the_readme_is_understood() {
        let options = run(&[
            "--source-url",
            "postgres://u:hunter2@h/d",
            "--bootstrap-servers",
            "k:9092",
            "--table",
            "public.outbox",
            "--table",
            "app.b,app.c",
            "--log-format",
            "json",
        ]);
        assert!(!format!("{options:?}").contains("hunter2"));
        let config = Config::load(None, &options.overrides()).unwrap();
        assert_eq!(config.outbox.tables, ["public.outbox", "app.b", "app.c"]);
        assert_eq!(
            check_report(&config),
            "configuration is valid\nname: outbox\nslot: outboxd_outbox\npublication: outboxd_outbox\n\
             tables: public.outbox, app.b, app.c\ntopic: outbox.event.${routedByValue}\nbrokers: k:9092\n\
             positions topic: outboxd.positions\nhttp: 127.0.0.1:9464\n"
        );
    }

    /// Each flag has an environment variable that follows from its name, and none shows the URL's value.
    #[test]
    fn each_flag_has_an_environment_variable() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        // what is done instead of running is no setting
        let settings =
            run.get_arguments().filter(|argument| argument.get_id() != "help" && argument.get_id() != "dry_run");
        for argument in settings {
            let long = argument.get_long().unwrap();
            let expected = format!("OUTBOXD_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(argument.get_env().unwrap().to_str().unwrap(), expected);
        }
        let url = run.get_arguments().find(|argument| argument.get_id() == "source_url").unwrap();
        assert!(url.is_hide_env_values_set());
    }

    #[test]
    fn usage_errors_have_exit_code_2() {
        for arguments in [&["outboxd", "run", "--tabel", "a.b"][..], &["outboxd", "frobnicate"], &["outboxd"]] {
            assert_eq!(Cli::try_parse_from(arguments).unwrap_err().exit_code(), 2, "{arguments:?}");
        }
        assert_eq!(Cli::try_parse_from(["outboxd", "--version"]).unwrap_err().exit_code(), 0);
    }

    #[test]
    fn every_finding_is_printed_with_its_hint() {
        let error = Config::load(None, &run(&["--source-url", "h/d"]).overrides()).unwrap_err();
        assert_eq!(
            error_text(&error),
            "error: source.postgres.url: has no scheme\nhint: write postgres://user@host:5432/database\n\
             error: sink: there is none\n\
             hint: give --bootstrap-servers (OUTBOXD_BOOTSTRAP_SERVERS) or --stdout, or [sink.kafka] in the file\n"
        );
    }
}
