use super::*;
use proptest::prelude::*;

fn shown(document: &[u8]) -> Result<String, JsonbError> {
    let mut out = Vec::new();
    write_text(document, &mut out).map(|()| String::from_utf8(out).unwrap())
}

fn compact(document: &[u8]) -> Result<String, JsonbError> {
    let mut out = Vec::new();
    write_compact(document, &mut out).map(|()| String::from_utf8(out).unwrap())
}

/// Recorded documents: bytes, the server's text, Debezium's.
fn recorded() -> Vec<(Vec<u8>, &'static str, &'static str)> {
    let lines = include_str!("../../../../tests/data/mysql/jsonb.hex").lines();
    let records = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let hex = fields[0];
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        ((0..hex.len()).step_by(2).map(byte).collect(), fields[1], fields[2])
    });
    records.collect()
}

/// Bytes of the binary log become what SELECT prints, and what Debezium streams.
#[test]
fn recorded_documents_are_the_servers() {
    let documents = recorded();
    assert!(documents.len() > 100);
    for (document, text, debezium) in documents {
        assert_eq!(shown(&document).as_deref(), Ok(text));
        if debezium != "-" {
            assert_eq!(compact(&document).as_deref(), Ok(debezium));
        }
    }
}

/// A document that was cut anywhere is refused; so is one behind it.
#[test]
fn cut_documents_are_refused() {
    for (document, text, _) in recorded() {
        for length in 1..document.len() {
            assert!(shown(&document[..length]).is_err(), "{text} cut to {length}");
        }
    }
}

#[test]
fn signs_are_escaped() {
    assert_eq!(shown(b""), Ok("null".to_owned()));
    assert_eq!(
        shown(b"\x0c\x0aa\"\\\n\x01\x1f/\x7f\r\t").as_deref(),
        Ok("\"a\\\"\\\\\\n\\u0001\\u001f/\u{7f}\\r\\t\"")
    );
    assert_eq!(compact(b"\x0c\x02\x1f\x08").as_deref(), Ok("\"\\u001F\\b\""));
    assert_eq!(shown(b"\x0f\xfd\x02ab").as_deref(), Ok("\"ab\""));
    assert_eq!(shown(b"\x0f\x0f\x02ab").as_deref(), Ok("\"base64:type15:YWI=\""));
    assert_eq!(compact(b"\x0f\x0f\x02ab").as_deref(), Ok("\"YWI=\""));
}

#[test]
fn what_is_no_document_is_refused() {
    let nan = [&[0x0B][..], &f64::NAN.to_le_bytes()].concat();
    for (document, error) in [
        (b"\x04\x03".as_slice(), JsonbError::Literal(3)),
        (b"\x0d", JsonbError::Type(0x0D)),
        (b"\x05\x01", JsonbError::Cut),
        (b"\x0c\x02a", JsonbError::Cut),
        (b"\x0c\xff\xff\xff\xff\xff\x01", JsonbError::Length),
        (b"\x0c\x01\xff", JsonbError::Text),
        (nan.as_slice(), JsonbError::Number),
        // an array whose element is the array, and one whose element is behind its end
        (b"\x02\x01\0\x07\0\x02\0\0", JsonbError::Outside),
        (b"\x02\x01\0\x07\0\x02\x08\0", JsonbError::Outside),
        // two elements that are the same text
        (b"\x02\x02\0\x0f\0\x0c\x0a\0\x0c\x0a\0\x04abcd", JsonbError::Shared),
        (b"\x02\xff\xff\x07\0\x02\0\0", JsonbError::Cut),
        (b"\x0f\xf6\x03\x04\x02\x80", JsonbError::Decimal(decimal::DecimalError::Type { precision: 4, scale: 2 })),
    ] {
        if let JsonbError::Decimal(_) = error {
            assert!(matches!(shown(document), Err(JsonbError::Decimal(_))));
            continue;
        }
        assert_eq!(shown(document), Err(error), "{document:x?}");
    }
}

/// Arrays within arrays, as deep as the server allows and one deeper.
#[test]
fn depth_has_an_end() {
    let nested = |levels: usize| {
        let mut document = vec![0, 0, 4, 0];
        for _ in 1..levels {
            let size = u16::try_from(document.len() + 7).unwrap();
            let mut outer = vec![1, 0];
            outer.extend(size.to_le_bytes());
            outer.extend([2, 7, 0]);
            outer.extend(document);
            document = outer;
        }
        document.insert(0, 2);
        document
    };
    assert_eq!(shown(&nested(100)).unwrap(), "[".repeat(100) + &"]".repeat(100));
    assert_eq!(shown(&nested(101)), Err(JsonbError::Deep));
}

proptest! {
    #[test]
    fn any_bytes_are_a_document_or_refused(kind in 0_u8..16, rest in prop::collection::vec(any::<u8>(), 0..200)) {
        let document = [&[kind][..], &rest].concat();
        if let Ok(text) = shown(&document) {
            prop_assert!(text.len() <= 40 + document.len() * 12);
        }
        let _ = compact(&document);
    }

    /// One wrong byte is noticed, or gives other text; it never breaks out.
    #[test]
    fn damaged_documents_are_text_or_refused(pick: prop::sample::Index, at: prop::sample::Index, byte: u8) {
        let mut documents = recorded();
        let (mut document, ..) = documents.swap_remove(pick.index(documents.len()));
        let at = at.index(document.len());
        document[at] = byte;
        let _ = (shown(&document), compact(&document));
    }
}
