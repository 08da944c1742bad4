//! The bytes that Debezium's router and the JSON converter give an expanded document.
//!
//! Debezium guesses a schema of Kafka Connect from the document, copies the document into it, and writes what is in there.
//! Where that ends in an error or leaves out something, there are no bytes to agree with: [`Why::Lossy`].

use std::borrow::Cow;

use super::Rules;
use super::document::{self, Node};
use crate::route::json;

/// Why there are no such bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The document is an empty array, which has no schema: it stays a text.
    EmptyArray,
    /// The document has no schema: it stays a text.
    NoSchema,
    /// Debezium stops, or loses something.
    Lossy,
}

/// A schema, as far as it can be guessed from a document.
#[derive(Clone, Debug, PartialEq)]
enum Schema<'a> {
    /// Of null, where nulls are kept.
    Null,
    Bool,
    Int32,
    Int64,
    Double,
    Text,
    Array(Box<Self>),
    /// Of an empty array, where those are kept.
    EmptyArray,
    Struct(Vec<(Cow<'a, str>, Self)>),
}

/// The bytes of a document that has no white space outside of texts.
///
/// # Errors
/// [`Why`]
pub(super) fn as_debezium(text: &str, rules: Rules) -> Result<Vec<u8>, Why> {
    let (document, is_lossy) = document::parse(text).ok_or(Why::NoSchema)?;
    let mut guess = Guess { rules, is_lossy, has_broken_name: is_lossy };
    let schema = guess.schema(&document)?;
    match (&document, schema) {
        // only objects are copied
        (Node::Array(elements), _) if elements.is_empty() => Err(Why::EmptyArray),
        (Node::Object(_), Some(schema)) if !guess.is_lossy => {
            let mut out = Vec::with_capacity(text.len());
            write(&mut out, &document, &schema, rules)?;
            Ok(out)
        }
        _ => Err(Why::Lossy),
    }
}

struct Guess {
    rules: Rules,
    /// Whether something came that the schema cannot hold.
    is_lossy: bool,
    /// Whether a name was left empty because it is broken.
    has_broken_name: bool,
}

impl Guess {
    /// The schema of a value; none for what is left out.
    fn schema<'a>(&mut self, node: &Node<'a>) -> Result<Option<Schema<'a>>, Why> {
        Ok(Some(match node {
            Node::Null if self.rules.nulls => Schema::Null,
            Node::Null => return Ok(None),
            Node::Bool(_) => Schema::Bool,
            Node::Int(number) if i32::try_from(*number).is_ok() => Schema::Int32,
            Node::Int(_) => Schema::Int64,
            Node::Large | Node::Double(_) => Schema::Double,
            Node::Text(_) => Schema::Text,
            Node::Broken => {
                self.is_lossy = true;
                Schema::Text
            }
            Node::Array(elements) if elements.is_empty() && self.rules.empty_arrays => Schema::EmptyArray,
            Node::Array(elements) if elements.is_empty() => return Ok(None),
            Node::Array(elements) => Schema::Array(Box::new(self.element(elements)?)),
            Node::Object(fields) => {
                let mut schemas = Vec::with_capacity(fields.len());
                for (name, value) in fields {
                    if let Some(schema) = self.schema(value)? {
                        // a schema's fields need names
                        if name.is_empty() && !self.has_broken_name {
                            return Err(Why::NoSchema);
                        }
                        schemas.push((name.clone(), schema));
                    }
                }
                Schema::Struct(schemas)
            }
        }))
    }

    /// The schema of an array's elements: that of the first one that is not null, with which all others have to agree.
    /// Objects are united.
    fn element<'a>(&mut self, elements: &[Node<'a>]) -> Result<Schema<'a>, Why> {
        let values = || elements.iter().filter(|element| **element != Node::Null);
        let Some(first) = values().next() else {
            return self.schema(&Node::Null)?.ok_or(Why::NoSchema);
        };
        for value in values() {
            let is_same_number = match (number(first), number(value)) {
                (Some(first), Some(value)) => first == value,
                _ => true,
            };
            if std::mem::discriminant(&kind(first)) != std::mem::discriminant(&kind(value)) || !is_same_number {
                return Err(Why::NoSchema);
            }
        }
        if !matches!(first, Node::Object(_)) {
            return self.schema(first)?.ok_or(Why::NoSchema);
        }
        let mut united: Vec<(Cow<'a, str>, Schema<'a>)> = Vec::new();
        for value in values() {
            let Some(Schema::Struct(fields)) = self.schema(value)? else { continue };
            for (name, schema) in fields {
                match united.iter().find(|(other, _)| *other == name) {
                    Some((_, other)) => self.is_lossy |= !agree(other, &schema),
                    None => united.push((name, schema)),
                }
            }
        }
        Ok(Schema::Struct(united))
    }
}

/// What Jackson calls the node's type.
enum Kind {
    Null,
    Bool,
    Number,
    Text,
    Array,
    Object,
}

fn kind(node: &Node<'_>) -> Kind {
    match node {
        Node::Null => Kind::Null,
        Node::Bool(_) => Kind::Bool,
        Node::Int(_) | Node::Large | Node::Double(_) => Kind::Number,
        Node::Text(_) | Node::Broken => Kind::Text,
        Node::Array(_) => Kind::Array,
        Node::Object(_) => Kind::Object,
    }
}

/// The size of a number: 32 bits, 64 bits, anything else.
fn number(node: &Node<'_>) -> Option<u8> {
    match node {
        Node::Int(number) if i32::try_from(*number).is_ok() => Some(0),
        Node::Int(_) => Some(1),
        Node::Large | Node::Double(_) => Some(2),
        _ => None,
    }
}

/// Whether two schemas of one field hold the same, in whatever order.
fn agree(a: &Schema<'_>, b: &Schema<'_>) -> bool {
    match (a, b) {
        (Schema::Struct(a), Schema::Struct(b)) => {
            let in_b = |(name, schema): &(Cow<'_, str>, Schema<'_>)| {
                b.iter().any(|(other, same)| other == name && agree(schema, same))
            };
            a.len() == b.len() && a.iter().all(in_b)
        }
        (Schema::Array(a), Schema::Array(b)) => agree(a, b),
        _ => a == b,
    }
}

/// Writes a value as its schema says; every field of a schema is written, those that the value does not have as null.
fn write(out: &mut Vec<u8>, node: &Node<'_>, schema: &Schema<'_>, rules: Rules) -> Result<(), Why> {
    match (node, schema) {
        (Node::Null, _) => out.extend_from_slice(b"null"),
        (Node::Bool(value), Schema::Bool) => out.extend_from_slice(value.to_string().as_bytes()),
        (Node::Int(value), Schema::Int32) if i32::try_from(*value).is_ok() => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        (Node::Int(value), Schema::Int64) if i32::try_from(*value).is_err() => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        (Node::Double(value), Schema::Double) if value.is_finite() => json::double(out, *value),
        (Node::Text(value), Schema::Text) => json::text(out, value),
        (Node::Array(elements), Schema::EmptyArray) if elements.is_empty() => out.extend_from_slice(b"[]"),
        (Node::Array(elements), Schema::Array(schema)) => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(out, element, schema, rules)?;
            }
            out.push(b']');
        }
        (Node::Object(fields), Schema::Struct(schemas)) => object(out, fields, schemas, rules)?,
        _ => return Err(Why::Lossy),
    }
    Ok(())
}

fn object(
    out: &mut Vec<u8>,
    fields: &[(Cow<'_, str>, Node<'_>)],
    schemas: &[(Cow<'_, str>, Schema<'_>)],
    rules: Rules,
) -> Result<(), Why> {
    let mut found = 0;
    out.push(b'{');
    for (index, (name, schema)) in schemas.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::text(out, name);
        out.push(b':');
        // mostly the same fields in the same order
        let at_place = fields.get(index).filter(|(other, _)| other == name);
        match at_place.or_else(|| fields.iter().find(|(other, _)| other == name)) {
            Some((_, value)) => {
                found += 1;
                write(out, value, schema, rules)?;
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    // the rest has to be what is left out on purpose
    let is_left_out = |node: &Node<'_>| match node {
        Node::Null => !rules.nulls,
        Node::Array(elements) => elements.is_empty() && !rules.empty_arrays,
        _ => false,
    };
    let known = |name: &str| schemas.iter().any(|(other, _)| other == name);
    let is_lost = found < fields.len() && fields.iter().any(|(name, node)| !known(name) && !is_left_out(node));
    if is_lost { Err(Why::Lossy) } else { Ok(()) }
}
