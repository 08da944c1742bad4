//! What a server needs for the relay: its account, the account's rights, and what is written into the binary log. Made
//! over a connection of somebody who may, or written as SQL for him. There is no slot: the server keeps nothing for a relay.

use super::client::{Client, run};
use super::error::{ClientError, from_client, refuse};
use super::server::{Server, catalog, literal, quoted, refusal, table_findings, texts};
use super::settings::{ConnectSettings, Flavour, MysqlSettings};
use crate::config::MysqlConfig;
use crate::config::secret::Secret;
use crate::source::SourceError;
use crate::source::setup::Outcome;

/// What a session has to write into the log: variables with their values.
const VARIABLES: [(&str, &str); 3] =
    [("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")];

/// In a statement that is shown, where the password belongs.
const PASSWORD: &str = "…";

/// One thing that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is, for a person: `user "outboxd" may read the binary log`.
    pub what: String,
    /// The statement that makes it; of a new account without its password.
    pub statement: String,
    check: Check,
}

/// How to tell whether a step is done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Check {
    /// There is an account of this user.
    Account,
    /// The grants of this account are the same before and after the statement.
    Grants(String),
    /// An SQL expression says so.
    Expression(String),
}

/// Everything that is needed, in order, for an account that is known at `hosts`.
fn steps(settings: &MysqlSettings, hosts: &[String]) -> Vec<Step> {
    let user = &settings.connect.user;
    let (monitor, scope) = match settings.flavour() {
        Flavour::Mysql => ("REPLICATION CLIENT, XA_RECOVER_ADMIN", "PERSIST"),
        Flavour::Mariadb => ("BINLOG MONITOR", "GLOBAL"),
    };
    let accounts: Vec<String> = hosts.iter().map(|host| format!("{}@{}", literal(user), literal(host))).collect();
    let mut steps = vec![Step {
        what: format!("user \"{user}\" exists"),
        statement: create_statement(&accounts.join(", "), PASSWORD),
        check: Check::Account,
    }];
    for account in &accounts {
        let check = Check::Grants(account.clone());
        steps.push(Step {
            what: format!("{account} may read the binary log"),
            statement: format!("GRANT REPLICATION SLAVE, {monitor} ON *.* TO {account};"),
            check: check.clone(),
        });
        for table in &settings.tables {
            steps.push(Step {
                what: format!("{account} may read table \"{}\"", table.plain()),
                statement: format!("GRANT SELECT ON {} TO {account};", quoted(table)),
                check: check.clone(),
            });
        }
    }
    steps.extend(VARIABLES.map(|(name, value)| Step {
        what: format!("{name} is {value}"),
        statement: format!("SET {scope} {name} = '{value}';"),
        check: Check::Expression(format!("@@GLOBAL.{name} = '{value}'")),
    }));
    steps
}

fn create_statement(accounts: &str, password: &str) -> String {
    format!("CREATE USER IF NOT EXISTS {accounts} IDENTIFIED BY {};", literal(password))
}

/// What lasts only until the server is started again, or is not a statement's.
fn remark(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Mysql => {
            "gtid_mode should be ON, so that a failover needs no hand, and log_bin has to be, as it is by default"
        }
        Flavour::Mariadb => {
            "the variables go into the server's configuration file too, and log_bin, which needs a restart"
        }
    }
}

/// The steps as a script that may be run twice.
#[must_use]
pub fn script(settings: &MysqlSettings) -> String {
    let statements: Vec<String> = steps(settings, &["%".to_owned()]).into_iter().map(|step| step.statement).collect();
    format!(
        "-- What instance \"{}\" of outboxd needs on the server. May be run twice. As an administrator, with the account's \
         password\n-- in the place of {PASSWORD} and the relay's host in the place of %.\n\n{}\n\n-- Sessions that are open keep \
         the variables that they have; {}.\n",
        settings.instance.escape_debug(),
        statements.join("\n"),
        remark(settings.flavour()),
    )
}

/// A connection that makes what is needed.
pub struct Setup<'a> {
    settings: &'a MysqlSettings,
    who: ConnectSettings,
    client: Client,
    hosts: Vec<String>,
}

impl<'a> Setup<'a> {
    /// Connects as the configured user or as `admin`, a URL, and sees that the tables can serve.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the login, or is of the other kind; a table is missing or lacks columns.
    pub async fn connect(settings: &'a MysqlSettings, admin: Option<Secret>) -> Result<Self, SourceError> {
        let who = match admin {
            None => settings.connect.clone(),
            Some(url) => {
                let config = MysqlConfig { url, ..MysqlConfig::default() };
                ConnectSettings::new(&config, settings.flavour())
                    .map_err(|error| refuse(format!("--admin-url: {error}"), "correct the URL"))?
            }
        };
        let mut settings_of_who = settings.clone();
        settings_of_who.connect = who.clone();
        let mut client = Client::connect(&who).await?;
        Server::inspect(&mut client, &settings_of_who).await?;
        let found = catalog(&mut client, &settings_of_who).await?;
        refusal(&table_findings(&settings_of_who, &found))?;
        let sql = format!("SELECT Host FROM mysql.user WHERE User = {}", literal(&settings.connect.user));
        // who may not see the accounts may not make one either, and is told so then
        let rows = client.query(&sql).await.unwrap_or_default();
        let mut hosts: Vec<String> = rows.into_iter().filter_map(|row| texts(row).into_iter().next()).collect();
        if hosts.is_empty() {
            hosts.push("%".to_owned());
        }
        Ok(Self { settings, who, client, hosts })
    }

    /// Where it is connected, and as whom.
    #[must_use]
    pub fn place(&self) -> String {
        format!("server {}, as user \"{}\"", self.who.address, self.who.user)
    }

    /// As whom it is connected.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.who.user
    }

    /// Everything that is needed, in order.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        steps(self.settings, &self.hosts)
    }

    /// What is left for a person.
    #[must_use]
    pub fn remark(&self) -> &'static str {
        remark(self.settings.flavour())
    }

    /// Makes what a step is about, unless it is there.
    ///
    /// # Errors
    /// What the server says, other than that a right is lacking; a new account would have no password.
    pub async fn run(&mut self, step: &Step) -> Result<Outcome, SourceError> {
        let outcome = match &step.check {
            Check::Account => self.account(step).await?,
            Check::Grants(account) => {
                let sql = format!("SHOW GRANTS FOR {account}");
                let before = self.client.query(&sql).await;
                let made = self.client.query(&step.statement).await;
                match (before, made) {
                    (Ok(before), Ok(_)) => {
                        let after = run(&mut self.client, &self.who, "read the grants", &sql).await?;
                        Ok(if before == after { Outcome::WasThere } else { Outcome::Made })
                    }
                    (Err(error), Ok(_)) | (_, Err(error)) => Err(error),
                }
            }
            Check::Expression(expression) => self.unless(expression, &step.statement).await,
        };
        outcome.or_else(|error| match error {
            // the last three: no such account, of which an earlier step has told that it could not be made
            ClientError::Server(error)
                if matches!(error.code, 1044 | 1045 | 1142 | 1143 | 1227 | 1133 | 1141 | 1410) =>
            {
                Ok(Outcome::Denied(error.to_string()))
            }
            other => Err(from_client("set up the server", &self.who, other)),
        })
    }

    async fn account(&mut self, step: &Step) -> Result<Result<Outcome, ClientError>, SourceError> {
        let user = literal(&self.settings.connect.user);
        let there = self.client.first(&format!("SELECT COUNT(*) FROM mysql.user WHERE User = {user}")).await;
        match there {
            Ok(Some(row)) if row.first().is_some_and(|count| count != "0") => return Ok(Ok(Outcome::WasThere)),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
        let Some(password) = self.settings.connect.password().await? else {
            return Err(refuse(
                format!("{} would have no password", step.what.replace(" exists", "")),
                format!("set option \"{}\"", self.settings.connect.option("password-file")),
            ));
        };
        let accounts: Vec<String> = self.hosts.iter().map(|host| format!("{user}@{}", literal(host))).collect();
        let made = self.client.query(&create_statement(&accounts.join(", "), password.expose())).await;
        Ok(made.map(|_| Outcome::Made))
    }

    async fn unless(&mut self, expression: &str, statement: &str) -> Result<Outcome, ClientError> {
        let row = self.client.first(&format!("SELECT {expression}")).await?;
        if row.is_some_and(|row| row.first().is_some_and(|is_done| is_done == "1")) {
            return Ok(Outcome::WasThere);
        }
        self.client.query(statement).await?;
        Ok(Outcome::Made)
    }
}
