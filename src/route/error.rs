//! Why a row cannot become a record.

/// A row cannot become a record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The table has no such column, at least not when the row was written.
    #[error("table \"{table}\" has no column \"{column}\"")]
    MissingColumn {
        /// `schema.table`
        table: String,
        /// The configured name.
        column: String,
    },
    /// The routing value is NULL, so there is no topic.
    #[error("column \"{column}\" of table \"{table}\" is NULL, so the record has no topic (event id {id})")]
    NoTopic {
        /// `schema.table`
        table: String,
        /// The routing column.
        column: String,
        /// The event's id.
        id: String,
    },
    /// A row was updated, and `outbox.on-update` is `stop`.
    #[error("a row of table \"{table}\" was updated, which option \"outbox.on-update\" forbids")]
    Updated {
        /// `schema.table`
        table: String,
    },
    /// A column or its value does not fit what the configuration makes of it.
    #[error("column \"{column}\" of table \"{table}\" {problem} (event id {id})")]
    Value {
        /// `schema.table`
        table: String,
        /// The column.
        column: String,
        /// The event's id.
        id: String,
        /// What is wrong with it.
        problem: String,
    },
}
