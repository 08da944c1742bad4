//! The primitives of the protocol and of the binary log (MySQL source documentation, "Protocol::Integer" and
//! "Protocol::String"): bounds-checked reading from a slice, and writing to a buffer.

use super::charset::CharsetError;
use super::decimal::DecimalError;
use super::jsonb::JsonbError;

/// What was read is shorter or other than it says itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub String);

impl Malformed {
    /// Names what cannot be understood.
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<CharsetError> for Malformed {
    fn from(error: CharsetError) -> Self {
        Self(error.to_string())
    }
}

impl From<JsonbError> for Malformed {
    fn from(error: JsonbError) -> Self {
        Self(crate::chain(&error))
    }
}

impl From<DecimalError> for Malformed {
    fn from(error: DecimalError) -> Self {
        Self(error.to_string())
    }
}

/// Reads a slice from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            return Err(Malformed(format!("{count} bytes were expected where {} are left", self.rest.len())));
        };
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(Malformed(format!("{N} bytes were expected where {} are left", self.rest.len())));
        };
        self.rest = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A little-endian integer of up to eight bytes.
    pub(super) fn uint(&mut self, width: usize) -> Result<u64, Malformed> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A big-endian integer of up to eight bytes.
    pub(super) fn uint_be(&mut self, width: usize) -> Result<u64, Malformed> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A length-encoded integer.
    pub(super) fn lenenc(&mut self) -> Result<u64, Malformed> {
        match self.u8()? {
            0xFC => self.uint(2),
            0xFD => self.uint(3),
            0xFE => self.uint(8),
            byte @ (0xFB | 0xFF) => Err(Malformed(format!("{byte:#04x} begins no length"))),
            byte => Ok(u64::from(byte)),
        }
    }

    /// A length-encoded integer that counts something in memory.
    pub(super) fn length(&mut self) -> Result<usize, Malformed> {
        let length = self.lenenc()?;
        usize::try_from(length).map_err(|_| Malformed(format!("a length of {length} is too much")))
    }

    /// A length-encoded string.
    pub(super) fn lenenc_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    /// A string up to a zero byte, which is read too.
    pub(super) fn nul_terminated(&mut self) -> Result<&'a [u8], Malformed> {
        let end = memchr::memchr(0, self.rest).ok_or_else(|| Malformed::new("a text has no zero byte at its end"))?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }
}

/// Appends a length-encoded string.
pub(super) fn put_lenenc_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    match u32::try_from(bytes.len()) {
        Ok(length @ 0..=250) => into.extend_from_slice(length.to_le_bytes().get(..1).unwrap_or_default()),
        Ok(length @ 251..=0xFFFF) => {
            into.push(0xFC);
            into.extend_from_slice(length.to_le_bytes().get(..2).unwrap_or_default());
        }
        Ok(length @ 0x1_0000..=0xFF_FFFF) => {
            into.push(0xFD);
            into.extend_from_slice(length.to_le_bytes().get(..3).unwrap_or_default());
        }
        _ => {
            into.push(0xFE);
            into.extend_from_slice(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        }
    }
    into.extend_from_slice(bytes);
}

/// The bit at `index`, counted from the lowest of the first byte.
pub(super) fn bit(bits: &[u8], index: usize) -> bool {
    bits.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_every_width() {
        for length in [0, 250, 251, 252, 65_535, 65_536, 1 << 24] {
            let mut bytes = Vec::new();
            put_lenenc_bytes(&mut bytes, &vec![7; length]);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.lenenc_bytes().unwrap().len(), length);
            assert!(reader.is_empty());
        }
        assert!(Reader::new(&[0xFB]).lenenc().is_err());
        assert_eq!(Reader::new(&[1, 2, 3]).uint(3), Ok(0x03_02_01));
        assert_eq!(Reader::new(&[1, 2, 3]).uint_be(3), Ok(0x01_02_03));
        assert!(bit(&[0, 0b10], 9) && !bit(&[0, 0b10], 8) && !bit(&[], 0));
    }

    proptest! {
        #[test]
        fn nothing_reads_past_the_end(bytes: Vec<u8>, count in 0_usize..40) {
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.take(count).is_ok(), count <= bytes.len());
            let _ = reader.lenenc_bytes();
            let _ = reader.nul_terminated();
        }
    }
}
