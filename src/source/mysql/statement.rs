//! Statements in the binary log: which make the frame of a transaction, and which wrote rows that the log does not show.

use super::events::xid_key;
use super::wire::Malformed;
use crate::config::TableName;

/// What a query event is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement<'a> {
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
    /// It may have inserted rows into a table that this part of it names: the log holds the statement in their place.
    Writes(&'a [u8]),
    /// A table may have other columns from here on.
    Defines,
    /// Anything else.
    Other,
}

/// Tells what a statement is by its first words.
///
/// # Errors
/// It decides about a prepared transaction whose identifier cannot be read.
pub(super) fn classify(sql: &[u8]) -> Result<Statement<'_>, Malformed> {
    let mut words = Words { rest: sql, is_unquoted: false };
    let mut first = words.next();
    // of MariaDB: variables for one statement, which stands behind them
    while is_one_of(first, &["SET"]) {
        if !is_one_of(words.next(), &["STATEMENT"]) || !words.find(&["FOR"]) {
            return Ok(Statement::Other);
        }
        first = words.next();
    }
    let is = |names: &[&str]| is_one_of(first, names);
    if is(&["BEGIN"]) {
        return Ok(Statement::Begin);
    }
    if is(&["COMMIT"]) {
        return Ok(Statement::Commit);
    }
    if is(&["ROLLBACK"]) {
        let is_part = is_one_of(words.next(), &["TO"]);
        return Ok(if is_part { Statement::RollbackTo } else { Statement::Rollback });
    }
    if is(&["SAVEPOINT"]) {
        return Ok(Statement::Savepoint);
    }
    if is(&["XA"]) {
        return xa(&mut words);
    }
    if is(&["INSERT", "REPLACE", "LOAD", "CALL", "SELECT", "WITH", "DO", "EXECUTE"]) {
        return Ok(Statement::Writes(sql));
    }
    Ok(if is(&["CREATE"]) {
        create(&mut words)
    } else if is(&["ALTER", "RENAME"]) {
        Statement::Defines
    } else if is(&["UPDATE", "DELETE", "GRANT", "REVOKE", "DROP", "TRUNCATE"]) {
        Statement::Other
    } else if words.find(&["INSERT", "REPLACE", "LOAD", "SELECT"]) {
        // whatever it is: these words are reserved, so it holds such a statement
        Statement::Writes(sql)
    } else {
        Statement::Other
    })
}

/// What stands behind XA.
fn xa<'a>(words: &mut Words<'a>) -> Result<Statement<'a>, Malformed> {
    let second = words.next();
    let identifier =
        || xid(words.rest).ok_or_else(|| Malformed::new("the identifier of an XA transaction cannot be read"));
    Ok(if is_one_of(second, &["START"]) {
        Statement::XaStart
    } else if is_one_of(second, &["COMMIT"]) {
        Statement::XaCommit(identifier()?)
    } else if is_one_of(second, &["ROLLBACK"]) {
        Statement::XaRollback(identifier()?)
    } else {
        Statement::Frame
    })
}

/// What stands behind CREATE. A definition of anything but a table writes nothing, whatever it holds.
fn create<'a>(words: &mut Words<'a>) -> Statement<'a> {
    let mut word = words.next();
    if is_one_of(word, &["OR"]) {
        words.next();
        word = words.next();
    }
    if !is_one_of(word, &["TABLE"]) {
        return Statement::Other;
    }
    let target = words.rest;
    loop {
        let end = target.len() - words.rest.len();
        let word = words.next();
        let is_query = match word {
            [] => return Statement::Defines,
            // a partition has VALUES of another kind
            word if is_one_of(word, &["VALUES"]) => !is_one_of(words.next(), &["LESS", "IN"]),
            word => is_one_of(word, &["SELECT", "TABLE"]),
        };
        if is_query {
            return Statement::Writes(target.get(..end).unwrap_or(target));
        }
    }
}

fn is_one_of(word: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Words of a statement, without comments, texts, and names in quotes.
struct Words<'a> {
    rest: &'a [u8],
    /// A text seemed not to end, so quotes have another meaning here, and words behind them count.
    is_unquoted: bool,
}

impl<'a> Words<'a> {
    /// The next one; empty at the end.
    fn next(&mut self) -> &'a [u8] {
        self.skip();
        let end = self.rest.iter().position(|byte| !is_of_word(*byte));
        let (word, rest) = self.rest.split_at_checked(end.unwrap_or(self.rest.len())).unwrap_or((self.rest, &[]));
        self.rest = rest;
        word
    }

    /// Goes behind the next one of these; says whether there is one.
    fn find(&mut self, names: &[&str]) -> bool {
        loop {
            let word = self.next();
            if word.is_empty() || is_one_of(word, names) {
                return !word.is_empty();
            }
        }
    }

    /// Everything that is no word; of a comment whose content is executed only its signs.
    fn skip(&mut self) {
        while let Some(first) = self.rest.first().copied().filter(|first| !is_of_word(*first)) {
            let executed = self.rest.strip_prefix(b"/*M!").or_else(|| self.rest.strip_prefix(b"/*!"));
            let count = if let Some(content) = executed {
                let digits = content.iter().take_while(|byte| byte.is_ascii_digit()).count();
                self.rest.len() - content.len() + digits
            } else if self.rest.starts_with(b"/*") {
                memchr::memmem::find(self.rest, b"*/").map_or(self.rest.len(), |end| end + 2)
            } else if first == b'#' || is_dashes(self.rest) {
                memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len())
            } else if matches!(first, b'\'' | b'"' | b'`') && !self.is_unquoted {
                let length = quoted(self.rest, first);
                self.is_unquoted = length.is_none();
                length.unwrap_or(1)
            } else {
                1
            };
            self.rest = self.rest.get(count..).unwrap_or_default();
        }
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

/// Whether a comment begins: two dashes alone are two signs of a number.
fn is_dashes(text: &[u8]) -> bool {
    text.strip_prefix(b"--").is_some_and(|rest| rest.first().is_none_or(|byte| *byte <= b' '))
}

/// How long a text in quotes is; `None`: it does not end.
fn quoted(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        if byte == b'\\' && quote != b'`' {
            at += 1;
        } else if byte == quote {
            // a quote that is doubled begins the next text
            return Some(at);
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
    // written with all its bits, and everywhere else with the lower 32
    let format: i128 = parts.next()?.parse().ok()?;
    let format = u32::try_from(format.rem_euclid(1 << 32)).ok()?;
    let data = [global.as_slice(), branch.as_slice()].concat();
    Some(xid_key(format, u8::try_from(global.len()).ok()?, &data))
}

/// Whether a statement may name a table: by its own name, and in its database or with that.
pub(super) fn names(sql: &[u8], database: &[u8], table: &TableName) -> bool {
    let is_there = database.eq_ignore_ascii_case(table.schema.as_bytes()) || mentions(sql, &table.schema);
    is_there && mentions(sql, &table.table)
}

/// Whether a statement has a name in it, in whatever case and quotes.
fn mentions(sql: &[u8], table: &str) -> bool {
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
            ("XA ROLLBACK X'61',X'',4294967295", Statement::XaRollback(b"\xff\xff\xff\xff\x01a".to_vec())),
            ("XA COMMIT X'61',X'',4294967299", Statement::XaCommit(b"\x03\0\0\0\x01a".to_vec())),
            ("CREATE TABLE begin (a int)", Statement::Defines),
            ("ALTER TABLE other CHANGE c c varchar(32) NOT NULL DEFAULT _utf8mb4'' COMMENT 'x'", Statement::Defines),
            ("RENAME TABLE a TO outbox", Statement::Defines),
            ("BEGINNING", Statement::Other),
            ("", Statement::Other),
        ] {
            assert_eq!(classify(sql.as_bytes()), Ok(expected), "{sql}");
        }
    }

    /// A decision that cannot be read is not passed over.
    #[test]
    fn a_decision_needs_its_identifier() {
        for sql in ["XA COMMIT 'a'", "XA COMMIT X'61',X'6',1", "XA ROLLBACK X'61',X'',one", "XA COMMIT X'61'"] {
            assert!(classify(sql.as_bytes()).is_err(), "{sql}");
        }
    }

    /// Whatever stands before it, and whether it names the outbox as what it writes to.
    #[test]
    fn statements_that_write_are_found() {
        for sql in [
            "/* app */ insert into outbox VALUES (1)",
            "-- note\n REPLACE outbox SELECT 1",
            "/*!50003 CALL outbox() */",
            "( SELECT f('outbox'))",
            "SET STATEMENT max_statement_time=5, sql_mode='FOR' FOR INSERT INTO outbox VALUES (1)",
            "SET STATEMENT a=1 FOR SET STATEMENT b=2 FOR REPLACE outbox VALUES (1)",
            "ANALYZE FORMAT=JSON INSERT INTO outbox VALUES (1)",
            "CREATE TABLE outbox AS SELECT 'a' AS id",
            "CREATE OR REPLACE TABLE `outbox` (id INT DEFAULT 1 COMMENT 'it''s \\' no'), KEY (id)) SELECT 1 AS id",
            "CREATE /*!50100 TABLE */ IF NOT EXISTS outbox TABLE other",
            "CREATE TABLE outbox (id INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9)) VALUES ROW(1)",
            // backslashes are no escapes in every mode: the text seems not to end
            "CREATE TABLE outbox (a CHAR(1) DEFAULT '\\') SELECT 1",
        ] {
            let found = classify(sql.as_bytes());
            assert!(matches!(found, Ok(Statement::Writes(part)) if mentions(part, "outbox")), "{sql}: {found:?}");
        }
    }

    #[test]
    fn statements_that_only_name_it_do_not_write() {
        for sql in [
            "GRANT SELECT, INSERT ON outbox TO app",
            "REVOKE INSERT ON outbox FROM app",
            "DELETE FROM outbox WHERE id IN (SELECT id FROM done)",
            "UPDATE outbox SET payload = REPLACE(payload, 'a', 'b')",
            "SET DEFAULT ROLE ALL TO outbox",
            "ANALYZE TABLE outbox",
            "TRUNCATE TABLE outbox",
            "DROP TABLE outbox /* SELECT */",
            "ALTER TABLE outbox EXCHANGE PARTITION p WITH TABLE other",
            "ALTER EVENT e DO INSERT INTO outbox VALUES (1)",
            "CREATE TABLE archive AS SELECT * FROM outbox",
            "CREATE TABLE outbox (id INT DEFAULT 5--3, a TEXT COMMENT 'SELECT', `select` INT) # SELECT",
            "CREATE TABLE outbox (id INT) PARTITION BY LIST (id) (PARTITION p VALUES IN (1))",
            "CREATE TABLE outbox LIKE other",
            "CREATE DEFINER=`root`@`localhost` TRIGGER t AFTER INSERT ON u FOR EACH ROW INSERT INTO outbox VALUES (1)",
            "CREATE DEFINER=root@localhost PROCEDURE p() INSERT INTO outbox SELECT 1",
            "CREATE OR REPLACE ALGORITHM=UNDEFINED DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW `v` AS SELECT * FROM outbox",
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO INSERT INTO outbox SELECT 1",
            "CREATE TEMPORARY TABLE outbox AS SELECT 1",
        ] {
            let found = classify(sql.as_bytes()).unwrap();
            assert!(!matches!(found, Statement::Writes(part) if mentions(part, "outbox")), "{sql}: {found:?}");
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

    /// Each service's database may have such a table.
    #[test]
    fn a_table_of_another_database_is_another() {
        let table = TableName { schema: "shop".to_owned(), table: "outbox".to_owned() };
        for (database, sql, expected) in [
            ("shop", "INSERT INTO outbox VALUES (1)", true),
            ("Shop", "INSERT INTO `Outbox` VALUES (1)", true),
            ("", "INSERT INTO `shop` . outbox VALUES (1)", true),
            ("other", "INSERT INTO shop.outbox VALUES (1)", true),
            ("other", "INSERT INTO outbox VALUES (1)", false),
            ("other", "INSERT INTO shop2.outbox VALUES (1)", false),
            ("shop", "INSERT INTO orders VALUES (1)", false),
        ] {
            assert_eq!(names(sql.as_bytes(), database.as_bytes(), &table), expected, "{database}: {sql}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_statement(sql: Vec<u8>, text in "(XA |/\\*!?|-- |#|COMMIT |X'|',|\"|`|CREATE TABLE |VALUES |SET STATEMENT |FOR |[a-f0-9 ]){0,12}") {
            let _ = (classify(&sql), classify(text.as_bytes()), mentions(&sql, "a"));
        }
    }
}
