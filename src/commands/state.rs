//! What an instance does, as `outboxd status` tells it.

use serde_json::{Value, json};

use super::{Verdict, text};
use crate::position::Position;
use crate::source::Terminal;

/// What the instance does, and who says so.
pub(super) struct State {
    pub(super) verdict: Verdict,
    pub(super) phase: String,
    pub(super) reason: String,
    pub(super) detail: String,
    pub(super) hint: String,
    pub(super) gap: Value,
    pub(super) since: Value,
    pub(super) by_relay: bool,
}

impl State {
    /// A state that the server shows.
    pub(super) fn seen(verdict: Verdict, phase: &str, reason: &str, detail: String, hint: &str) -> Self {
        Self {
            verdict,
            phase: phase.to_owned(),
            reason: reason.to_owned(),
            detail,
            hint: hint.to_owned(),
            gap: Value::Null,
            since: Value::Null,
            by_relay: false,
        }
    }

    /// The terminal state that a relay would be in.
    pub(super) fn terminal(terminal: &Terminal) -> Self {
        let side = |position: &Option<Position>| position.as_ref().map(ToString::to_string);
        let gap = terminal.gap.as_ref().map(|gap| json!({ "from": side(&gap.from), "to": side(&gap.to) }));
        let (reason, detail) = (terminal.reason.code(), terminal.message.clone());
        let state = Self::seen(Verdict::Terminal, "terminal", reason, detail, &terminal.hint);
        Self { gap: gap.unwrap_or_default(), ..state }
    }

    /// What a relay answers about itself.
    pub(super) fn of_relay(relay: &Value) -> Self {
        let is_ready = relay.get("ready").and_then(Value::as_bool) == Some(true);
        let verdict = match text(relay, "phase") {
            _ if is_ready => Verdict::Done,
            "terminal" => Verdict::Terminal,
            _ => Verdict::NotReady,
        };
        let part = |key: &str| relay.get(key).cloned().unwrap_or_default();
        let (phase, reason, detail) = (text(relay, "phase"), text(relay, "reason"), text(relay, "detail").to_owned());
        let state = Self::seen(verdict, phase, reason, detail, text(relay, "hint"));
        Self { gap: part("gap"), since: part("since"), by_relay: true, ..state }
    }
}
