//! Statements in the binary log: which make the frame of a transaction, and which wrote rows that the log does not show.

use super::events::xid_key;

/// What a query event is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// A transaction's rows follow.
    Begin,
    /// The transaction is complete.
    Commit,
    /// What the transaction did is undone.
    Rollback,
    /// A part of the transaction is undone.
    RollbackTo,
    /// A part of the transaction may be undone up to here.
    Savepoint,
    /// Rows follow that count only when the transaction of this identifier is committed.
    XaStart,
    /// A prepared transaction is committed.
    XaCommit(Vec<u8>),
    /// A prepared transaction is undone.
    XaRollback(Vec<u8>),
    /// A part of a frame that says nothing.
    Frame,
    /// It may have inserted rows: the log holds the statement in their place.
    Writes,
    /// Anything else, such as DDL.
    Other,
}

/// Tells what a statement is by its first words.
pub(super) fn classify(sql: &[u8]) -> Statement {
    let mut words = Words { rest: sql };
    let first = words.next();
    let word = |name: &str, found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
    let is = |name: &str| word(name, first);
    if is("BEGIN") {
        return Statement::Begin;
    }
    if is("COMMIT") {
        return Statement::Commit;
    }
    if is("ROLLBACK") {
        return if word("TO", words.next()) { Statement::RollbackTo } else { Statement::Rollback };
    }
    if is("SAVEPOINT") {
        return Statement::Savepoint;
    }
    if is("XA") {
        let second = words.next();
        let identifier = || xid(words.rest);
        return if word("START", second) {
            Statement::XaStart
        } else if word("COMMIT", second) {
            identifier().map_or(Statement::Other, Statement::XaCommit)
        } else if word("ROLLBACK", second) {
            identifier().map_or(Statement::Other, Statement::XaRollback)
        } else {
            Statement::Frame
        };
    }
    let writes = ["INSERT", "REPLACE", "LOAD", "CALL", "SELECT", "WITH", "DO", "EXECUTE"];
    if writes.iter().any(|name| is(name)) { Statement::Writes } else { Statement::Other }
}

/// Words of a statement, without comments.
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    fn next(&mut self) -> &'a [u8] {
        self.skip();
        let end = self.rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        let (word, rest) = self.rest.split_at_checked(end.unwrap_or(self.rest.len())).unwrap_or((self.rest, &[]));
        self.rest = rest;
        word
    }

    /// Blanks, parentheses, and comments but those whose content is executed.
    fn skip(&mut self) {
        loop {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'(' | b';');
            let end = self.rest.iter().position(|byte| !blank(byte)).unwrap_or(self.rest.len());
            self.rest = self.rest.get(end..).unwrap_or_default();
            let executed = self.rest.strip_prefix(b"/*M!").or_else(|| self.rest.strip_prefix(b"/*!"));
            if let Some(content) = executed {
                let digits = content.iter().take_while(|byte| byte.is_ascii_digit()).count();
                self.rest = content.get(digits..).unwrap_or_default();
            } else if self.rest.starts_with(b"/*") {
                let end = memchr::memmem::find(self.rest, b"*/").map_or(self.rest.len(), |end| end + 2);
                self.rest = self.rest.get(end..).unwrap_or_default();
            } else if self.rest.starts_with(b"--") || self.rest.starts_with(b"#") {
                let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
                self.rest = self.rest.get(end..).unwrap_or_default();
            } else {
                return;
            }
        }
    }
}

/// An identifier as the servers write it: `X'hex',X'hex',format`.
fn xid(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let mut parts = text.split(',').map(str::trim);
    let mut part = || {
        let quoted = parts.next()?;
        let digits = quoted.strip_prefix("X'").or_else(|| quoted.strip_prefix("x'"))?.strip_suffix('\'')?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        rest.is_empty().then(|| pairs.iter().map(byte).collect::<Option<Vec<u8>>>()).flatten()
    };
    let (global, branch) = (part()?, part()?);
    let format: i32 = parts.next()?.parse().ok()?;
    let data = [global.as_slice(), branch.as_slice()].concat();
    Some(xid_key(format.cast_unsigned(), u8::try_from(global.len()).ok()?, &data))
}

/// Whether a statement names a table, in whatever case and quotes.
pub(super) fn mentions(sql: &[u8], table: &str) -> bool {
    let (sql, table) = (sql.to_ascii_lowercase(), table.to_ascii_lowercase());
    let is_part =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'));
    memchr::memmem::find_iter(&sql, table.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|at| sql.get(at));
        !is_part(before) && !is_part(sql.get(at + table.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_and_writers_are_told_apart() {
        for (sql, expected) in [
            ("BEGIN", Statement::Begin),
            ("COMMIT", Statement::Commit),
            ("ROLLBACK", Statement::Rollback),
            ("ROLLBACK TO `a`", Statement::RollbackTo),
            ("SAVEPOINT `a`", Statement::Savepoint),
            ("XA START X'61',X'',1", Statement::XaStart),
            ("XA END X'61',X'',1", Statement::Frame),
            ("XA COMMIT X'61',X'62',1", Statement::XaCommit(b"\x01\0\0\0\x01ab".to_vec())),
            ("XA ROLLBACK X'61',X'',-1", Statement::XaRollback(b"\xff\xff\xff\xff\x01a".to_vec())),
            ("/* app */ insert into outbox VALUES (1)", Statement::Writes),
            ("-- note\n REPLACE outbox SELECT 1", Statement::Writes),
            ("/*!50003 CALL p() */", Statement::Writes),
            ("( SELECT f())", Statement::Writes),
            ("CREATE TABLE begin (a int)", Statement::Other),
            ("ALTER TABLE other CHANGE c c varchar(32) NOT NULL DEFAULT _utf8mb4'' COMMENT 'x'", Statement::Other),
            ("BEGINNING", Statement::Other),
            ("", Statement::Other),
        ] {
            assert_eq!(classify(sql.as_bytes()), expected, "{sql}");
        }
    }

    #[test]
    fn a_table_is_named_as_a_whole_word() {
        for (sql, expected) in [
            ("INSERT INTO `shop`.`Outbox` VALUES (1)", true),
            ("insert outbox(a) values(1)", true),
            ("INSERT INTO outbox_old VALUES (1)", false),
            ("INSERT INTO myoutbox VALUES (1)", false),
        ] {
            assert_eq!(mentions(sql.as_bytes(), "outbox"), expected, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_statement(sql: Vec<u8>, text in "(XA |/\\*|--|#|COMMIT |X'|',|[a-f0-9 ]){0,12}") {
            let _ = (classify(&sql), classify(text.as_bytes()), mentions(&sql, "a"));
        }
    }
}
