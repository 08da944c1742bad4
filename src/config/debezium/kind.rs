//! Which of Debezium's connectors it is.

use super::list::{self, Line};

/// A connector that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// PostgreSQL's; also what a connector without a class is looked at as.
    #[default]
    Postgres,
    /// MySQL's.
    Mysql,
    /// MariaDB's.
    Mariadb,
}

/// The classes by all the names that Kafka Connect knows them by.
const CLASSES: &[(&str, Kind)] = &[
    ("io.debezium.connector.postgresql.PostgresConnector", Kind::Postgres),
    ("io.debezium.connector.mysql.MySqlConnector", Kind::Mysql),
    ("MySqlConnector", Kind::Mysql),
    ("MySql", Kind::Mysql),
    ("io.debezium.connector.mariadb.MariaDbConnector", Kind::Mariadb),
    ("MariaDbConnector", Kind::Mariadb),
    ("MariaDb", Kind::Mariadb),
];

impl Kind {
    /// The kind of a connector class; PostgreSQL's if it is not known.
    pub(super) fn of(class: &str) -> Self {
        let known = CLASSES.iter().find(|(name, _)| name.eq_ignore_ascii_case(class));
        known.map_or_else(Self::default, |(_, kind)| *kind)
    }

    /// The name of the source's table in the configuration, which is the scheme of its URL too.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }

    /// The text with the source's own table where the list has `source.*`.
    pub(super) fn named(self, text: &str) -> String {
        text.replace("source.*", &format!("source.{}", self.source()))
    }

    /// An option of the source by its full name.
    pub(super) fn option(self, key: &str) -> String {
        format!("source.{}.{key}", self.source())
    }

    /// The lists of properties, to be read one after the other.
    pub(super) fn lists(self) -> Vec<&'static [Line]> {
        match self {
            Self::Postgres => vec![list::COMMON, list::POSTGRES, list::CONNECT],
            Self::Mysql | Self::Mariadb => vec![list::BINLOG, list::COMMON, list::CONNECT],
        }
    }

    /// The properties that Debezium demands: each with what it is, and the option that it becomes.
    pub(super) fn required(self) -> Vec<(&'static str, &'static str, String)> {
        let class = CLASSES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| *name);
        let mut required = vec![
            ("connector.class", class, String::new()),
            ("topic.prefix", "the connector's logical name", "record.legacy-prefix".to_owned()),
            ("database.hostname", "the database server's name or address", self.option("url")),
        ];
        let (user, last) = match self {
            Self::Postgres => ("the role to log in as", ("database.dbname", "the database's name", self.option("url"))),
            Self::Mysql | Self::Mariadb => {
                let what = "a number that no other replica of the server has";
                ("the user to log in as", ("database.server.id", what, self.option("server-id")))
            }
        };
        required.extend([("database.user", user, self.option("url")), last]);
        required
    }

    /// A table as an example for a person.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Postgres => "public\\.outbox",
            Self::Mysql | Self::Mariadb => "shop\\.outbox",
        }
    }
}
