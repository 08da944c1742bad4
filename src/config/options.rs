//! The one list of all options. The search for unknown keys reads it, and tests hold it against [`Config`](super::Config)
//! and against the table in the README.

/// An option of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Full name: tables and key, with dots between.
    pub key: &'static str,
    /// Type, or the words to choose from.
    pub kind: &'static str,
    /// Default as it would be written in the file; `None`: unset.
    pub default: Option<&'static str>,
}

const fn option(key: &'static str, kind: &'static str, default: Option<&'static str>) -> OptionInfo {
    OptionInfo { key, kind, default }
}

/// Kind of an option that is a table of free keys with texts.
pub const TABLE_OF_TEXT: &str = "table of text";

/// Every option, in the order of the documentation.
pub const OPTIONS: &[OptionInfo] = &[
    option("name", "text", Some("\"outbox\"")),
    option("on-terminal", "wait, exit", Some("\"wait\"")),
    option("source.postgres.url", "URL", None),
    option("source.postgres.password", "text", None),
    option("source.postgres.password-file", "path", None),
    option("source.postgres.password-command", "list of text", Some("[]")),
    option("source.postgres.slot", "text", None),
    option("source.postgres.publication", "text", None),
    option("source.postgres.start", "table, now", Some("\"table\"")),
    option("source.postgres.failover-slot", "true, false", Some("true")),
    option("source.postgres.silence-timeout", "duration", Some("\"30s\"")),
    option("source.postgres.connect-timeout", "duration", Some("\"10s\"")),
    option("source.mysql.url", "URL", None),
    option("source.mysql.password", "text", None),
    option("source.mysql.password-file", "path", None),
    option("source.mysql.password-command", "list of text", Some("[]")),
    option("source.mysql.server-id", "number", None),
    option("source.mysql.start", "table, now", Some("\"table\"")),
    option("source.mysql.silence-timeout", "duration", Some("\"30s\"")),
    option("source.mysql.connect-timeout", "duration", Some("\"10s\"")),
    option("source.mariadb.url", "URL", None),
    option("source.mariadb.password", "text", None),
    option("source.mariadb.password-file", "path", None),
    option("source.mariadb.password-command", "list of text", Some("[]")),
    option("source.mariadb.server-id", "number", None),
    option("source.mariadb.start", "table, now", Some("\"table\"")),
    option("source.mariadb.silence-timeout", "duration", Some("\"30s\"")),
    option("source.mariadb.connect-timeout", "duration", Some("\"10s\"")),
    option("outbox.tables", "list of text", Some("[\"public.outbox\"]")),
    option("outbox.start-where", "SQL condition", None),
    option("outbox.start-order-by", "list of text", Some("[]")),
    option("outbox.on-update", "warn, error, stop", Some("\"warn\"")),
    option("outbox.columns.id", "text", Some("\"id\"")),
    option("outbox.columns.id-format", "column, uuid", Some("\"column\"")),
    option("outbox.columns.key", "text", Some("\"aggregateid\"")),
    option("outbox.columns.route-by", "text", Some("\"aggregatetype\"")),
    option("outbox.columns.payload", "text", Some("\"payload\"")),
    option("outbox.columns.timestamp", "text", None),
    option("outbox.columns.tracing-context", "text", None),
    option("record.topic", "text", Some("\"outbox.event.${routedByValue}\"")),
    option("record.topic-regex", "Java regex", Some("\"(?<routedByValue>.*)\"")),
    option("record.headers", "list of text", Some("[]")),
    option("record.envelope", "list of text", Some("[]")),
    option("record.partition", "text", None),
    option("record.missing-columns", "error, ignore", Some("\"error\"")),
    option("record.key-format", "string, json, bytes, int32, int64", Some("\"string\"")),
    option("record.key-delegate", "none, string, json", Some("\"none\"")),
    option("record.value-format", "string, json, bytes", Some("\"string\"")),
    option("record.value-delegate", "none, string, json", Some("\"none\"")),
    option("record.header-format", "simple, json", Some("\"simple\"")),
    option("record.tombstone-on-empty", "true, false", Some("false")),
    option("record.expand-json", "off, debezium, raw", Some("\"off\"")),
    option("record.expand-json-null", "ignore, keep", Some("\"ignore\"")),
    option("record.expand-json-empty-array", "ignore, keep", Some("\"ignore\"")),
    option("record.context-headers", "true, false", Some("false")),
    option("record.legacy-prefix", "text", None),
    option("record.binary-as", "raw, base64, base64-url-safe, hex", Some("\"raw\"")),
    option("record.decimal-as", "precise, double, string", Some("\"precise\"")),
    option("record.time-format", "debezium, iso", Some("\"debezium\"")),
    option("record.mysql-values", "server, debezium", Some("\"server\"")),
    option("record.timestamp", "commit, processing", Some("\"commit\"")),
    option("sink.kafka.bootstrap-servers", "text", None),
    option("sink.kafka.positions-topic", "text", Some("\"outboxd.positions\"")),
    option("sink.kafka.create-topics", "true, false", Some("true")),
    option("sink.kafka.topic-partitions", "number", None),
    option("sink.kafka.topic-replication-factor", "number", None),
    option("sink.kafka.topic-config", TABLE_OF_TEXT, Some("{}")),
    option("sink.kafka.sasl-username", "text", None),
    option("sink.kafka.sasl-password", "text", None),
    option("sink.kafka.sasl-password-file", "path", None),
    option("sink.kafka.oauth.token-endpoint", "URL", None),
    option("sink.kafka.oauth.client-id", "text", None),
    option("sink.kafka.oauth.client-secret-file", "path", None),
    option("sink.kafka.oauth.scope", "text", None),
    option("sink.kafka.oauth.ca-file", "path", None),
    option("sink.kafka.oauth.token-command", "list of text", Some("[]")),
    option("sink.kafka.oauth.extensions", TABLE_OF_TEXT, Some("{}")),
    option("sink.kafka.options", TABLE_OF_TEXT, Some("{}")),
    option("sink.stdout.positions-file", "path", Some("\"outboxd.position.json\"")),
    option("delivery.guarantee", "at-least-once", Some("\"at-least-once\"")),
    option("delivery.on-row-error", "stop", Some("\"stop\"")),
    option("delivery.window-bytes", "bytes", Some("16777216")),
    option("delivery.position-interval", "duration", Some("\"100ms\"")),
    option("delivery.shutdown-timeout", "duration", Some("\"30s\"")),
    option("http.listen", "address:port", Some("\"127.0.0.1:9464\"")),
    option("log.format", "text, json", Some("\"text\"")),
    option("log.level", "text", Some("\"info\"")),
];

/// The option of this full name.
#[must_use]
pub fn find(key: &str) -> Option<&'static OptionInfo> {
    OPTIONS.iter().find(|option| option.key == key)
}

/// Whether `path` is a table with options in it; the empty path is the whole file.
#[must_use]
pub fn is_table(path: &str) -> bool {
    path.is_empty() || OPTIONS.iter().any(|option| below(option.key, path).is_some())
}

/// The keys directly in the table `path`: options and tables.
#[must_use]
pub fn keys_in(path: &str) -> Vec<&'static str> {
    let mut keys: Vec<&'static str> = OPTIONS
        .iter()
        .filter_map(|option| if path.is_empty() { Some(option.key) } else { below(option.key, path) })
        .filter_map(|rest| rest.split('.').next())
        .collect();
    keys.dedup();
    keys
}

/// What follows `path` and a dot in `key`.
fn below<'a>(key: &'a str, path: &str) -> Option<&'a str> {
    key.strip_prefix(path)?.strip_prefix('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, KafkaConfig, MysqlConfig, PostgresConfig, StdoutConfig};
    use serde::Deserialize;
    use serde::de::value::{Error, MapDeserializer};
    use serde::de::{Deserializer, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor};
    use std::cell::RefCell;

    /// Pretends to be a file in which every key of a type is there, and notes the keys.
    #[derive(Clone, Copy)]
    struct Explorer<'a> {
        path: &'a str,
        keys: &'a RefCell<Vec<String>>,
    }

    struct Fields<'a> {
        explorer: Explorer<'a>,
        rest: std::slice::Iter<'static, &'static str>,
        path: String,
    }

    impl<'de> MapAccess<'de> for Fields<'_> {
        type Error = Error;

        fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
            let Some(field) = self.rest.next() else { return Ok(None) };
            let path = self.explorer.path;
            self.path = if path.is_empty() { (*field).to_owned() } else { format!("{path}.{field}") };
            seed.deserialize((*field).into_deserializer()).map(Some)
        }

        fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
            seed.deserialize(Explorer { path: &self.path, keys: self.explorer.keys })
        }
    }

    struct Variant(&'static str);

    impl<'de> EnumAccess<'de> for Variant {
        type Error = Error;
        type Variant = Self;

        fn variant_seed<V: serde::de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
            Ok((seed.deserialize(self.0.into_deserializer())?, self))
        }
    }

    impl<'de> VariantAccess<'de> for Variant {
        type Error = Error;

        fn unit_variant(self) -> Result<(), Error> {
            Ok(())
        }

        fn newtype_variant_seed<T: serde::de::DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
            unreachable!()
        }

        fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
            unreachable!()
        }

        fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Error> {
            unreachable!()
        }
    }

    impl Explorer<'_> {
        fn note(self) {
            self.keys.borrow_mut().push(self.path.to_owned());
        }
    }

    impl<'de> Deserializer<'de> for Explorer<'_> {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_str("1s")
        }

        fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_bool(true)
        }

        fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_u32(1)
        }

        fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_u64(1)
        }

        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.visit_some(self)
        }

        fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_seq(serde::de::value::SeqDeserializer::new(std::iter::empty::<String>()))
        }

        fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_map(MapDeserializer::new(std::iter::empty::<(String, String)>()))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            visitor.visit_map(Fields { explorer: self, rest: fields.iter(), path: String::new() })
        }

        fn deserialize_enum<V: Visitor<'de>>(
            self,
            _: &'static str,
            variants: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            self.note();
            visitor.visit_enum(Variant(variants[0]))
        }

        serde::forward_to_deserialize_any! {
            i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct tuple
            tuple_struct identifier ignored_any
        }
    }

    /// The list has exactly the keys that the type takes, in the same order.
    #[test]
    fn the_list_is_the_type() {
        let keys = RefCell::new(Vec::new());
        Config::deserialize(Explorer { path: "", keys: &keys }).unwrap();
        let listed: Vec<&str> = OPTIONS.iter().map(|option| option.key).collect();
        assert_eq!(keys.into_inner(), listed);
    }

    /// The documented defaults are those of the type.
    #[test]
    fn the_defaults_are_the_types() {
        let mut text = String::new();
        for option in OPTIONS {
            if let Some(default) = option.default {
                text.push_str(&format!("{} = {default}\n", option.key));
            }
        }
        let documented: Config = toml::from_str(&text).unwrap();
        let mut built_in = Config::default();
        built_in.source.postgres = Some(PostgresConfig::default());
        built_in.source.mysql = Some(MysqlConfig::default());
        built_in.source.mariadb = Some(MysqlConfig::default());
        built_in.sink.kafka = Some(KafkaConfig::default());
        built_in.sink.stdout = Some(StdoutConfig::default());
        assert_eq!(format!("{documented:?}"), format!("{built_in:?}"));
    }

    #[test]
    fn keys_of_a_table_are_its_own() {
        assert_eq!(
            keys_in("outbox.columns"),
            ["id", "id-format", "key", "route-by", "payload", "timestamp", "tracing-context"]
        );
        assert_eq!(keys_in("sink"), ["kafka", "stdout"]);
        assert!(is_table("sink.kafka") && !is_table("sink.kaf") && !is_table("name"));
    }
}
