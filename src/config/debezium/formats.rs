//! The converters: which bytes key, value and headers become.
//!
//! They stand in the connector or in the worker's file. A converter and its settings come from one place: settings in a
//! connector that names no converter have no effect in Connect.

use super::input::{Input, Property};
use super::translate::{Fate, Objection, Translation, truth};

/// One of the three converters.
struct Side {
    /// `key.converter`
    property: &'static str,
    /// `record.key-format`
    option: &'static str,
    /// `record.key-delegate`; headers have none.
    delegate: Option<&'static str>,
    /// `--key-format`
    flag: Option<&'static str>,
    /// `debezium.format.key`
    server: &'static str,
}

const SIDES: &[Side] = &[
    Side {
        property: "key.converter",
        option: "record.key-format",
        delegate: Some("record.key-delegate"),
        flag: Some("--key-format"),
        server: "debezium.format.key",
    },
    Side {
        property: "value.converter",
        option: "record.value-format",
        delegate: Some("record.value-delegate"),
        flag: Some("--value-format"),
        server: "debezium.format.value",
    },
    Side {
        property: "header.converter",
        option: "record.header-format",
        delegate: None,
        flag: None,
        server: "debezium.format.header",
    },
];

const SETTINGS: &str = "schemas.enable";
const DELEGATE: &str = "delegate.converter.type";

/// What a converter is called in a file, and what it is.
const CONVERTERS: &[(&str, Kind)] = &[
    ("org.apache.kafka.connect.storage.StringConverter", Kind::Text),
    ("org.apache.kafka.connect.storage.SimpleHeaderConverter", Kind::SimpleHeader),
    ("org.apache.kafka.connect.json.JsonConverter", Kind::Json),
    ("org.apache.kafka.connect.converters.ByteArrayConverter", Kind::Bytes),
    ("io.debezium.converters.BinaryDataConverter", Kind::Binary),
    ("io.debezium.converters.ByteBufferConverter", Kind::Binary),
    ("io.debezium.converters.ByteArrayConverter", Kind::Binary),
    ("org.apache.kafka.connect.converters.IntegerConverter", Kind::Number("int32")),
    ("org.apache.kafka.connect.converters.LongConverter", Kind::Number("int64")),
    // Debezium Server's words
    ("string", Kind::Text),
    ("simplestring", Kind::Text),
    ("json", Kind::Json),
    ("binary", Kind::Binary),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    SimpleHeader,
    Json,
    Bytes,
    Binary,
    Number(&'static str),
}

pub(super) fn translate(translation: &mut Translation<'_>) {
    let connector = translation.connector;
    for side in SIDES {
        let flag = match side.property {
            "key.converter" => translation.given.key_format.clone(),
            "value.converter" => translation.given.value_format.clone(),
            _ => None,
        };
        let name = if connector.is_server { side.server } else { side.property };
        let own = connector.get(name).filter(|property| !property.raw.is_empty());
        let of_worker = translation.worker.filter(|_| !connector.is_server);
        let workers = of_worker.and_then(|worker| Some((worker, worker.get(name).filter(|p| !p.raw.is_empty())?)));
        if let (Some(word), Some(flag)) = (flag, side.flag) {
            translation.document.set(side.option, word);
            set_aside(translation, connector, name, &format!("{flag} wins over it"));
            continue;
        }
        match (own, workers) {
            (Some(property), _) => convert(translation, side, connector, property),
            (None, Some((worker, property))) => {
                set_aside(
                    translation,
                    connector,
                    name,
                    &format!("it has no effect without {name} beside it; the worker's file has one"),
                );
                convert(translation, side, worker, property);
            }
            (None, None) => absent(translation, side, name),
        }
    }
}

/// Notes that the settings below `name` have no effect.
fn set_aside(translation: &mut Translation<'_>, input: &Input, name: &str, why: &str) {
    let below = format!("{name}.");
    for property in &input.properties {
        if property.name == name || property.name.starts_with(&below) {
            translation.note(&input.file, property, Fate::Ignored(why.to_owned()));
        }
    }
}

fn absent(translation: &mut Translation<'_>, side: &Side, name: &str) {
    let connector = translation.connector;
    let Some(flag) = side.flag else {
        let why = format!("it has no effect without {name} beside it");
        return set_aside(translation, connector, name, &why);
    };
    let what = if connector.is_server { "json with a schema" } else { "what the Connect worker's file says" };
    let problem = if translation.worker.is_some() {
        "is missing here and in the worker's file: the bytes cannot be known".to_owned()
    } else {
        format!("is missing, which means {what}: the bytes cannot be known")
    };
    let hint = if connector.is_server {
        format!("give {flag}, or add the format and debezium.format.schemas.enable")
    } else {
        format!("give --worker-config FILE, or {flag} (string, json, bytes), or add the converter")
    };
    translation.lack(name, &problem, hint, side.option);
    if let Some(finding) = translation.missing.last_mut()
        && connector.is_server
    {
        finding.option = Some(name.to_owned());
    }
}

/// Translates the converter that stands in `input`.
fn convert(translation: &mut Translation<'_>, side: &Side, input: &Input, property: &Property) {
    let below = format!("{}.", property.name);
    for setting in input.properties.iter().filter(|setting| setting.name.starts_with(&below)) {
        let fate = match setting.name.get(below.len()..).unwrap_or_default() {
            SETTINGS | DELEGATE => Fate::Mapped(side.option.to_owned()),
            option if option.starts_with(&format!("{DELEGATE}.")) => Fate::Mapped(side.option.to_owned()),
            _ => Fate::Ignored(format!("see {}", property.written)),
        };
        translation.note(&input.file, setting, fate);
    }
    if property.broken.is_some() {
        return translation.left_out.push(side.option.to_owned());
    }
    let settings = Settings { input, prefix: below, is_server: translation.connector.is_server };
    match format(&property.value, side, &settings) {
        Ok((word, delegate)) => {
            translation.set(side.option, word, property);
            if let (Some(delegate), Some(option)) = (delegate, side.delegate) {
                translation.set(option, delegate, property);
            }
            let fate = if side.delegate.is_none() && word == "simple" && kind(&property.value) == Some(Kind::Text) {
                let difference = "as SimpleHeaderConverter: binary columns and arrays are written otherwise";
                Fate::Differs(side.option.to_owned(), difference.to_owned())
            } else {
                Fate::Mapped(side.option.to_owned())
            };
            translation.note(&input.file, property, fate);
        }
        Err(objection) => {
            let fate = translation.object(objection);
            translation.left_out.push(side.option.to_owned());
            translation.note(&input.file, property, fate);
        }
    }
}

/// Where a converter's settings stand.
struct Settings<'a> {
    input: &'a Input,
    prefix: String,
    is_server: bool,
}

impl Settings<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.input.value(&format!("{}{name}", self.prefix))
    }

    /// Connect's default is `true`.
    fn has_schemas(&self, name: &str) -> bool {
        let of_server = || self.input.value("debezium.format.schemas.enable").filter(|_| self.is_server);
        self.value(name).or_else(of_server).and_then(truth).unwrap_or(true)
    }
}

fn kind(class: &str) -> Option<Kind> {
    CONVERTERS.iter().find(|(name, _)| *name == class).map(|(_, kind)| *kind)
}

/// Our words for a converter and its delegate.
fn format(
    class: &str,
    side: &Side,
    settings: &Settings<'_>,
) -> Result<(&'static str, Option<&'static str>), Objection> {
    let is_header = side.delegate.is_none();
    let with_schema = |setting: &str| {
        Objection::never(
            "JSON with a schema is not available",
            format!("set {setting} to \"false\", if consumers expect plain JSON"),
        )
    };
    let schemas = if settings.is_server {
        "debezium.format.schemas.enable".to_owned()
    } else {
        format!("{}{SETTINGS}", settings.prefix)
    };
    match kind(class) {
        Some(Kind::Text | Kind::SimpleHeader) if is_header => Ok(("simple", None)),
        Some(Kind::Text) => Ok(("string", None)),
        Some(Kind::Json) if settings.has_schemas(SETTINGS) => Err(with_schema(&schemas)),
        Some(Kind::Json) => Ok(("json", None)),
        Some(Kind::Bytes) if !is_header => Ok(("bytes", None)),
        Some(Kind::Number(word)) if side.option == "record.key-format" => Ok((word, None)),
        Some(Kind::Binary) if !is_header => match settings.value(DELEGATE).map(|class| (class, kind(class))) {
            None => Ok(("bytes", None)),
            Some((_, Some(Kind::Text))) => Ok(("bytes", Some("string"))),
            Some((_, Some(Kind::Json))) => {
                let setting = format!("{DELEGATE}.{SETTINGS}");
                if settings.has_schemas(&setting) {
                    return Err(with_schema(&format!("{}{setting}", settings.prefix)));
                }
                Ok(("bytes", Some("json")))
            }
            Some((class, _)) => Err(unavailable(class, side)),
        },
        _ => Err(unavailable(class, side)),
    }
}

fn unavailable(class: &str, side: &Side) -> Objection {
    let short = class.rsplit('.').next().unwrap_or(class);
    let words = match side.option {
        "record.key-format" => {
            "use StringConverter, JsonConverter without schemas, ByteArrayConverter, BinaryDataConverter, \
                                IntegerConverter or LongConverter"
        }
        "record.value-format" => {
            "use StringConverter, JsonConverter without schemas, ByteArrayConverter or BinaryDataConverter"
        }
        _ => "use SimpleHeaderConverter, StringConverter or JsonConverter without schemas",
    };
    Objection::never(format!("the converter {short} is not available"), words)
}
