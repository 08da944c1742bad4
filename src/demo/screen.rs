//! The screen: aligned lines on standard output, in colour only where a person looks.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";

/// Whose line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The shop keeps something.
    Kept,
    /// The shop writes something that is not kept, or not yet.
    NotKept,
    /// The consumer has read something.
    Read,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// Whose line it is.
    pub(super) side: Side,
    /// What happened.
    pub(super) what: &'a str,
    /// Key of the event.
    pub(super) key: &'a str,
    /// Id of the event; its first characters are shown.
    pub(super) id: &'a str,
    /// Type of the event, or its topic.
    pub(super) subject: &'a str,
    /// Whatever is to be said.
    pub(super) note: &'a str,
}

/// Standard output. Clones write to the same.
#[derive(Clone)]
pub(super) struct Screen {
    colour: bool,
    begun: Arc<OnceLock<Instant>>,
    /// Cancelled when nobody reads any more.
    closed: CancellationToken,
}

impl Screen {
    /// Standard output; `closed` is cancelled when its reader has gone.
    pub(super) fn new(closed: CancellationToken) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let colour = std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb;
        Self { colour, begun: Arc::default(), closed }
    }

    /// A line as it is.
    pub(super) fn line(&self, text: &str) {
        let mut output = std::io::stdout().lock();
        if writeln!(output, "{text}").and_then(|()| output.flush()).is_err() {
            self.closed.cancel();
        }
    }

    /// A heading.
    pub(super) fn heading(&self, text: &str) {
        self.line(&self.paint(BOLD, text));
    }

    /// A fact with its name; an empty name goes on with the one before.
    pub(super) fn fact(&self, name: &str, text: &str) {
        self.line(&format!("  {}  {text}", self.paint(BOLD, &format!("{name:<10}"))));
    }

    /// Begins the table; times count from here.
    pub(super) fn begin(&self) {
        let _ = self.begun.set(Instant::now());
        let head =
            format!("  {:>6}  {:<5}  {:<8}  {:<10}  {:<8}  {}", "time", "where", "what", "key", "event id", "event");
        self.line(&self.paint(DIM, &head));
    }

    /// A line of the table.
    pub(super) fn row(&self, row: Row<'_>) {
        let elapsed = self.begun.get().map_or(Duration::ZERO, Instant::elapsed);
        self.line(&self.render(row, elapsed));
    }

    /// A finding of the tally.
    pub(super) fn check(&self, holds: bool, text: &str) {
        let mark = if holds { self.paint(GREEN, "yes") } else { self.paint(RED, "NO ") };
        self.line(&format!("  {mark}  {text}"));
    }

    /// The last word.
    pub(super) fn verdict(&self, holds: bool, text: &str) {
        self.line(&self.paint(if holds { GREEN } else { RED }, text));
    }

    fn render(&self, row: Row<'_>, elapsed: Duration) -> String {
        let (place, colour) = match row.side {
            Side::Kept => ("shop", CYAN),
            Side::NotKept => ("shop", YELLOW),
            Side::Read => ("kafka", GREEN),
        };
        let time = self.paint(DIM, &format!("{:>6.2}", elapsed.as_secs_f64()));
        let what = self.paint(colour, &format!("{place:<5}  {:<8}", row.what));
        let id: String = row.id.chars().take(8).collect();
        let id = self.paint(DIM, &format!("{id:<8}"));
        let line = format!("  {time}  {what}  {:<10}  {id}  {:<21}  {}", row.key, row.subject, row.note);
        line.trim_end().to_owned()
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("{colour}{text}{RESET}") } else { text.to_owned() }
    }
}

/// A time as a person reads it.
pub(super) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(colour: bool) -> Screen {
        Screen { colour, begun: Arc::default(), closed: CancellationToken::new() }
    }

    fn row<'a>(key: &'a str, subject: &'a str) -> Row<'a> {
        Row { side: Side::Kept, what: "COMMIT", key, id: "3f2a9c1e-77", subject, note: "note" }
    }

    #[test]
    fn columns_are_aligned_whatever_the_letters() {
        let screen = screen(false);
        let column = |line: &str| line.chars().collect::<String>().split("note").next().unwrap().chars().count();
        let plain = screen.render(row("1001", "OrderPlaced"), Duration::from_millis(310));
        let other = screen.render(row("Käsekuchen", "outbox.event.Customer"), Duration::from_secs(12));
        assert_eq!(plain, "    0.31  shop   COMMIT    1001        3f2a9c1e  OrderPlaced            note");
        assert_eq!(column(&plain), column(&other), "{plain}\n{other}");
    }

    #[test]
    fn colour_changes_no_letter() {
        let coloured = screen(true).render(row("1", "x"), Duration::ZERO);
        assert!(coloured.contains(CYAN));
        let mut bare = coloured;
        for code in [RESET, DIM, CYAN] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, screen(false).render(row("1", "x"), Duration::ZERO));
    }
}
