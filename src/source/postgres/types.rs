//! What the values of PostgreSQL's types mean.
//!
//! The server's own types are known by their OIDs (`pg_type.dat` of its source). Of all others (domains, enums, arrays of
//! both) the catalogue says what they are made of. What is not listed is what its text says.

use std::collections::HashMap;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::settings::PostgresSettings;
use super::{catalog, error, sql};
use crate::change::ColumnType;
use crate::source::SourceError;

/// The lowest OID of a type made by a user (`FirstNormalObjectId`).
const FIRST_NORMAL_OID: u32 = 16_384;

/// No type modifier.
const NO_MODIFIER: i32 = -1;

/// What arrays of times are made of, by the digits of a second.
static TIMES: [ColumnType; 7] = [
    ColumnType::Time(0),
    ColumnType::Time(1),
    ColumnType::Time(2),
    ColumnType::Time(3),
    ColumnType::Time(4),
    ColumnType::Time(5),
    ColumnType::Time(6),
];

/// What arrays of date and time are made of.
static TIMESTAMPS: [ColumnType; 7] = [
    ColumnType::Timestamp(0),
    ColumnType::Timestamp(1),
    ColumnType::Timestamp(2),
    ColumnType::Timestamp(3),
    ColumnType::Timestamp(4),
    ColumnType::Timestamp(5),
    ColumnType::Timestamp(6),
];

/// What arrays of moments are made of.
static MOMENTS: [ColumnType; 7] = [
    ColumnType::TimestampTz(0),
    ColumnType::TimestampTz(1),
    ColumnType::TimestampTz(2),
    ColumnType::TimestampTz(3),
    ColumnType::TimestampTz(4),
    ColumnType::TimestampTz(5),
    ColumnType::TimestampTz(6),
];

/// Arrays of the server's own types, with what they are made of.
const ARRAYS: &[(u32, u32)] = &[
    (143, 142),
    (199, 114),
    (651, 650),
    (775, 774),
    (791, 790),
    (1000, 16),
    (1001, 17),
    (1002, 18),
    (1003, 19),
    (1005, 21),
    (1007, 23),
    (1009, 25),
    (1014, 1042),
    (1015, 1043),
    (1016, 20),
    (1021, 700),
    (1022, 701),
    (1028, 26),
    (1040, 829),
    (1041, 869),
    (1115, 1114),
    (1182, 1082),
    (1183, 1083),
    (1185, 1184),
    (1187, 1186),
    (1231, 1700),
    (1270, 1266),
    (1561, 1560),
    (1563, 1562),
    (2951, 2950),
    (3807, 3802),
];

/// What a user's type is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// The type underneath.
    oid: u32,
    /// The modifier that a domain gives it.
    modifier: i32,
    /// Whether it is an array of that type.
    is_array: bool,
}

/// What users' types are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bases(HashMap<u32, Base>);

/// The question to the catalogue what these types are made of; `None` if they are all the server's own.
#[must_use]
pub(super) fn question(oids: impl IntoIterator<Item = u32>) -> Option<String> {
    let users: Vec<String> =
        oids.into_iter().filter(|oid| *oid >= FIRST_NORMAL_OID).map(|oid| oid.to_string()).collect();
    if users.is_empty() {
        return None;
    }
    // a step goes from a domain to its type, or, once, from an array to its elements' type; the last step counts
    Some(format!(
        "WITH RECURSIVE made AS (\
             SELECT oid AS asked, oid, -1 AS modifier, false AS is_array, 0 AS step \
             FROM pg_catalog.pg_type WHERE oid IN ({}) \
         UNION ALL \
             SELECT made.asked, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END, \
                 CASE WHEN t.typtype = 'd' AND made.modifier = -1 THEN t.typtypmod ELSE made.modifier END, \
                 made.is_array OR t.typtype <> 'd', made.step + 1 \
             FROM made JOIN pg_catalog.pg_type t ON t.oid = made.oid \
             WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0 AND NOT made.is_array)) \
         SELECT asked::text, oid::text, modifier::text, is_array::text FROM made ORDER BY step",
        users.join(", ")
    ))
}

/// The root of a table's partitions, itself where it is configured, and what these types are made of.
pub(super) async fn look_up(
    settings: &PostgresSettings,
    table: u32,
    is_configured: bool,
    types: Vec<u32>,
) -> Result<(Option<u32>, Bases), SourceError> {
    let session = sql::SqlSession::connect(&settings.connect).await?;
    let failed = |error| error::from_driver("look up a table's partitions and types", &settings.connect, error);
    let root = match is_configured {
        true => Some(table),
        false => catalog::partition_root(&session.client, table).await.map_err(failed)?,
    };
    Ok((root, Bases::ask(&session.client, types).await.map_err(failed)?))
}

impl Bases {
    /// Reads the answer.
    #[must_use]
    pub(super) fn read(rows: &[Vec<Option<String>>]) -> Self {
        let mut bases = HashMap::new();
        for row in rows {
            if let [Some(of), Some(oid), Some(modifier), Some(is_array)] = row.as_slice()
                && let (Ok(of), Ok(oid), Ok(modifier)) = (of.parse(), oid.parse(), modifier.parse())
            {
                bases.insert(of, Base { oid, modifier, is_array: is_array == "true" });
            }
        }
        Self(bases)
    }

    /// Asks the catalogue, if there is anything to ask.
    pub(super) async fn ask(
        client: &Client,
        oids: impl IntoIterator<Item = u32>,
    ) -> Result<Self, tokio_postgres::Error> {
        let Some(question) = question(oids) else { return Ok(Self::default()) };
        let cells = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect::<Vec<_>>())
            }
            _ => None,
        };
        let rows: Vec<_> = client.simple_query(&question).await?.into_iter().filter_map(cells).collect();
        Ok(Self::read(&rows))
    }

    /// What the values of a column of this type mean. A type that has been dropped meanwhile is what its text says.
    #[must_use]
    pub(super) fn kind(&self, oid: u32, modifier: i32) -> ColumnType {
        let Some(base) = self.0.get(&oid) else { return kind(oid, modifier) };
        let modifier = if base.modifier == NO_MODIFIER { modifier } else { base.modifier };
        let kind = kind(base.oid, modifier);
        if base.is_array { array(kind) } else { kind }
    }
}

/// An array of such values. An array's text has its dimensions in it, so that an array of arrays is the same.
fn array(kind: ColumnType) -> ColumnType {
    let digits = |all: &'static [ColumnType; 7], digits: u8| all.get(usize::from(digits)).unwrap_or(&ColumnType::Text);
    ColumnType::Array(match kind {
        ColumnType::Text => &ColumnType::Text,
        ColumnType::Json => &ColumnType::Json,
        ColumnType::Uuid => &ColumnType::Uuid,
        ColumnType::Bool => &ColumnType::Bool,
        ColumnType::Bit => &ColumnType::Bit,
        ColumnType::Bits => &ColumnType::Bits,
        ColumnType::Int16 => &ColumnType::Int16,
        ColumnType::Int32 => &ColumnType::Int32,
        ColumnType::Int64 => &ColumnType::Int64,
        ColumnType::Float32 => &ColumnType::Float32,
        ColumnType::Float64 => &ColumnType::Float64,
        ColumnType::Numeric => &ColumnType::Numeric,
        ColumnType::VariableNumeric => &ColumnType::VariableNumeric,
        ColumnType::Money => &ColumnType::Money,
        ColumnType::Bytes => &ColumnType::Bytes,
        ColumnType::Date => &ColumnType::Date,
        ColumnType::Time(kept) => digits(&TIMES, kept),
        ColumnType::TimeTz => &ColumnType::TimeTz,
        ColumnType::Timestamp(kept) => digits(&TIMESTAMPS, kept),
        ColumnType::TimestampTz(kept) => digits(&MOMENTS, kept),
        ColumnType::Interval => &ColumnType::Interval,
        ColumnType::Array(element) => element,
    })
}

/// What the values of one of the server's own types mean.
fn kind(type_oid: u32, modifier: i32) -> ColumnType {
    // without a modifier a time keeps microseconds
    let digits = u8::try_from(modifier).unwrap_or(6);
    match type_oid {
        16 => ColumnType::Bool,
        17 => ColumnType::Bytes,
        20 | 26 => ColumnType::Int64,
        21 => ColumnType::Int16,
        23 => ColumnType::Int32,
        114 | 3802 => ColumnType::Json,
        700 => ColumnType::Float32,
        701 => ColumnType::Float64,
        790 => ColumnType::Money,
        1082 => ColumnType::Date,
        1083 => ColumnType::Time(digits),
        1114 => ColumnType::Timestamp(digits),
        1184 => ColumnType::TimestampTz(digits),
        1186 => ColumnType::Interval,
        1266 => ColumnType::TimeTz,
        1560 | 1562 if modifier == 1 => ColumnType::Bit,
        1560 | 1562 => ColumnType::Bits,
        1700 if modifier == NO_MODIFIER => ColumnType::VariableNumeric,
        1700 => ColumnType::Numeric,
        2950 => ColumnType::Uuid,
        _ => match ARRAYS.iter().find(|(oid, _)| *oid == type_oid) {
            Some((_, element)) => array(kind(*element, modifier)),
            None => ColumnType::Text,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_their_oids() {
        let own = Bases::default();
        for (oid, modifier, expected) in [
            (25, -1, ColumnType::Text),
            (1114, -1, ColumnType::Timestamp(6)),
            (1114, 3, ColumnType::Timestamp(3)),
            (1700, -1, ColumnType::VariableNumeric),
            (1700, 655_366, ColumnType::Numeric),
            (1560, 1, ColumnType::Bit),
            (1560, 8, ColumnType::Bits),
            (1007, -1, ColumnType::Array(&ColumnType::Int32)),
            (1185, 3, ColumnType::Array(&ColumnType::TimestampTz(3))),
            (1009, -1, ColumnType::Array(&ColumnType::Text)),
            (600, -1, ColumnType::Text),
        ] {
            assert_eq!(own.kind(oid, modifier), expected, "{oid} {modifier}");
        }
        assert_eq!(question([25, 1114]), None);
        assert!(question([25, 16_400]).is_some_and(|sql| sql.contains("IN (16400)")));
    }

    #[test]
    fn the_last_step_tells_what_a_users_type_is() {
        let row = |cells: [&str; 4]| cells.map(|cell| Some(cell.to_owned())).to_vec();
        let bases = Bases::read(&[
            row(["20000", "20000", "-1", "false"]),
            row(["20001", "20001", "-1", "false"]),
            row(["20002", "20002", "-1", "false"]),
            row(["20000", "1700", "655366", "false"]),
            row(["20001", "20000", "-1", "true"]),
            row(["20001", "1700", "655366", "true"]),
        ]);
        assert_eq!(bases.kind(20_000, -1), ColumnType::Numeric);
        assert_eq!(bases.kind(20_001, -1), ColumnType::Array(&ColumnType::Numeric));
        // an enum, and a type that has gone
        assert_eq!(bases.kind(20_002, -1), ColumnType::Text);
        assert_eq!(bases.kind(20_003, -1), ColumnType::Text);
    }
}
