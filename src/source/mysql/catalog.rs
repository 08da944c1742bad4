//! The outbox tables as the server's catalogue has them.

use super::charset;
use super::client::{Client, TextRow, run};
use super::layout::{Special, SpecialKind, same_name};
use super::server::{literal, quoted, texts};
use super::settings::MysqlSettings;
use crate::change::ColumnType;
use crate::config::{MysqlValues, TableName};
use crate::finding::Finding;
use crate::source::SourceError;

/// The outbox tables.
pub(super) type Catalog = Vec<CatalogTable>;

/// A table as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogTable {
    pub name: TableName,
    /// `BASE TABLE`, or something else.
    kind: String,
    /// None: there is no such table, or it cannot be seen.
    pub columns: Vec<CatalogColumn>,
}

/// Reads the outbox tables' columns.
pub(super) async fn catalog(client: &mut Client, settings: &MysqlSettings) -> Result<Catalog, SourceError> {
    let mut catalog = Vec::with_capacity(settings.tables.len());
    for name in &settings.tables {
        let sql = format!(
            "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            literal(&name.schema),
            literal(&name.table)
        );
        let rows = run(client, &settings.connect, "look for the outbox table", &sql).await?;
        let kind = rows.into_iter().flat_map(texts).next().unwrap_or_default();
        let columns = columns(client, settings, name).await?;
        catalog.push(CatalogTable { name: name.clone(), kind, columns });
    }
    Ok(catalog)
}

/// Columns whose type the log does not tell: it has their bytes alone.
pub(super) fn special(catalog: &Catalog) -> Vec<Special> {
    let mut found = Vec::new();
    for CatalogTable { name: table, columns, .. } in catalog {
        for column in columns {
            let kind = match column.kind.as_str() {
                "uuid" => SpecialKind::Uuid,
                "inet6" => SpecialKind::Inet6,
                "inet4" => SpecialKind::Inet4,
                _ => continue,
            };
            found.push(Special { table: table.clone(), column: column.name.clone(), kind });
        }
    }
    found
}

/// What is wrong with the outbox tables.
pub(super) fn table_findings(settings: &MysqlSettings, catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    for CatalogTable { name: table, kind, columns } in catalog {
        if columns.is_empty() {
            let hint = format!(
                "make it, correct option \"outbox.tables\", or have an administrator run: GRANT SELECT ON {} TO …;",
                quoted(table)
            );
            let message = format!(
                "table \"{}\" does not exist, or user \"{}\" may not read it",
                table.plain(),
                settings.connect.user
            );
            findings.push(Finding::error(message, hint));
            continue;
        }
        let problem = match kind.as_str() {
            "SYSTEM VERSIONED" => Some((
                "keeps old versions of its rows: its log holds an insert for each update",
                "without SYSTEM VERSIONING",
            )),
            "VIEW" => Some(("is a view: the log holds the rows of the tables behind it", "that holds the rows")),
            _ => None,
        };
        if let Some((problem, better)) = problem {
            findings.push(Finding::error(
                format!("table \"{}\" {problem}", table.plain()),
                format!("name a table {better} in option \"outbox.tables\""),
            ));
        }
        for wanted in settings.columns.iter().chain(&settings.optional_columns) {
            let found = columns.iter().find(|column| same_name(&column.name, wanted));
            let is_needed = settings.columns.contains(wanted);
            let message = match found {
                None if is_needed => format!("table \"{}\" has no column \"{wanted}\"", table.plain()),
                None => continue,
                Some(column) => match column.problem() {
                    Some(problem) => format!("column \"{wanted}\" of table \"{}\" {problem}", table.plain()),
                    None => continue,
                },
            };
            let hint = "change the table, or the column's option in [outbox.columns] or \"record.headers\"";
            findings.push(Finding::error(message, hint));
        }
    }
    findings
}

/// A column as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogColumn {
    pub name: String,
    /// Name of the type alone, such as `varchar`.
    pub kind: String,
    /// The type with length and sign, such as `binary(16)`.
    pub full: String,
    /// Digits of a second.
    digits: u8,
    /// Number of the collation; 0: none.
    pub collation: u64,
    collation_name: String,
}

impl CatalogColumn {
    /// What its values mean: the same as in the log.
    pub(super) fn meaning(&self, values: MysqlValues) -> ColumnType {
        let is_unsigned = self.full.contains("unsigned");
        match self.kind.as_str() {
            "tinyint" => ColumnType::Int16,
            "smallint" if !is_unsigned => ColumnType::Int16,
            "smallint" | "mediumint" | "year" => ColumnType::Int32,
            "int" if !is_unsigned => ColumnType::Int32,
            "int" | "bigint" => ColumnType::Int64,
            "float" => ColumnType::Float32,
            "double" => ColumnType::Float64,
            "decimal" => ColumnType::Numeric,
            "date" => ColumnType::Date,
            "datetime" => ColumnType::Timestamp(self.digits),
            "timestamp" => ColumnType::TimestampTz(self.digits),
            "bit" if self.full == "bit(1)" => ColumnType::Bool,
            "bit" if values == MysqlValues::Debezium => ColumnType::Bits,
            "bit" | "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => ColumnType::Bytes,
            "time" if values == MysqlValues::Debezium => ColumnType::Time(6),
            "json" => ColumnType::Json,
            "uuid" => ColumnType::Uuid,
            _ => ColumnType::Text,
        }
    }

    /// Why its values cannot be read.
    fn problem(&self) -> Option<String> {
        let spatial = ["geometry", "point", "linestring", "polygon", "geometrycollection", "geomcollection"];
        if spatial.contains(&self.kind.as_str()) || self.kind.starts_with("multi") || self.kind == "vector" {
            return Some(format!("has type {}, which has no text", self.kind));
        }
        let number = u16::try_from(self.collation).ok();
        let is_known = self.collation == 0 || number.and_then(charset::decoder).is_some();
        (!is_known).then(|| {
            format!("has collation {}, whose character set is not available here: use utf8mb4", self.collation_name)
        })
    }
}

/// The columns of a table, in their order; none: there is no such table, or it cannot be seen.
async fn columns(
    client: &mut Client,
    settings: &MysqlSettings,
    table: &TableName,
) -> Result<Vec<CatalogColumn>, SourceError> {
    let sql = format!(
        "SELECT c.COLUMN_NAME, c.DATA_TYPE, COALESCE(l.ID, 0), COALESCE(c.COLLATION_NAME, ''), c.COLUMN_TYPE, \
         COALESCE(c.DATETIME_PRECISION, 0) \
         FROM information_schema.COLUMNS c LEFT JOIN information_schema.COLLATIONS l ON l.COLLATION_NAME = c.COLLATION_NAME \
         WHERE c.TABLE_SCHEMA = {} AND c.TABLE_NAME = {} ORDER BY c.ORDINAL_POSITION",
        literal(&table.schema),
        literal(&table.table)
    );
    let rows = run(client, &settings.connect, "read the outbox table's columns", &sql).await?;
    let column = |row: TextRow| {
        let mut texts = texts(row).into_iter();
        let mut next = || texts.next().unwrap_or_default();
        let (name, kind, collation, collation_name) = (next(), next(), next(), next());
        let (full, digits) = (next(), next());
        CatalogColumn {
            name,
            kind: kind.to_ascii_lowercase(),
            full: full.to_ascii_lowercase(),
            digits: digits.parse().unwrap_or_default(),
            collation: collation.parse().unwrap_or_default(),
            collation_name,
        }
    };
    Ok(rows.into_iter().map(column).collect())
}
