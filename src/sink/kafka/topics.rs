//! What is known about topics. Asked before the first record of each, not learned from refusals.
//!
//! ```text
//!            ┌────────────── look up ──────────────┐
//!  (unknown) ┴▶ Asked ──▶ Usable{limit} ── no room, after 10 s ────┘
//!                 │ └───▶ Unusable ── after 5 s, look up again ──┘
//!                 Denied ── after 5 to 30 s, send one record alone
//! ```

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::sink::Blocked;

/// Pause before a topic that cannot be used is looked up again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Pause before a limit that a record exceeds is asked again.
const ASK_LIMIT_AGAIN: Duration = Duration::from_secs(10);
/// Pauses before a topic that refused its writer is tried again: the first, and the longest.
const TRY_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// Where a topic's limit is not known, batches are not made smaller than this: then it is a record that is too large.
const SMALLEST_GUESS: u64 = 16 << 10;
/// A refusal this long after the last one is a new one.
const FORGIVEN_AFTER: Duration = Duration::from_secs(120);

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The topic takes records of up to so many bytes, as far as the broker tells.
    Usable {
        /// `max.message.bytes`.
        limit: Option<u64>,
        /// How many partitions it has, as far as that is known.
        partitions: Option<i32>,
    },
    /// It does not take any now.
    Unusable(Blocked),
}

#[derive(Debug)]
enum Topic {
    Asked { before: Option<Blocked> },
    Usable { limit: Option<u64>, partitions: Option<i32>, asked: Instant },
    Unusable { blocked: Blocked, again: Instant },
    Denied { blocked: Blocked, again: Instant, pause: Duration, since: Instant },
}

/// What to do with a record of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send it, unless it is larger than the limit.
    Send {
        /// `max.message.bytes`.
        limit: Option<u64>,
    },
    /// Send it, and nothing else until it is acknowledged.
    Try,
    /// Look the topic up; meanwhile `before` still holds.
    LookUp {
        /// What stood in the way when it was last looked at.
        before: Option<Blocked>,
    },
    /// Wait for the look-up, or until the instant.
    Wait {
        /// What stands in the way.
        blocked: Option<Blocked>,
        /// When to try again.
        until: Option<Instant>,
    },
}

/// All topics that were seen.
#[derive(Debug, Default)]
pub(super) struct Topics {
    known: HashMap<String, Topic>,
    /// Limits that the brokers do not tell: half of what was refused.
    guesses: HashMap<String, u64>,
}

impl Topics {
    /// What to do with a record of `topic`. The time is asked for only where it matters: this runs for each record.
    pub(super) fn verdict(&mut self, topic: &str, now: impl Fn() -> Instant) -> Verdict {
        let before = match self.known.get(topic) {
            Some(Topic::Usable { limit, .. }) => return Verdict::Send { limit: *limit },
            Some(Topic::Asked { before }) => return Verdict::Wait { blocked: before.clone(), until: None },
            Some(Topic::Unusable { blocked, again } | Topic::Denied { blocked, again, .. }) if *again > now() => {
                return Verdict::Wait { blocked: Some(blocked.clone()), until: Some(*again) };
            }
            Some(Topic::Denied { .. }) => return Verdict::Try,
            Some(Topic::Unusable { blocked, .. }) => Some(blocked.clone()),
            None => None,
        };
        self.ask(topic, before)
    }

    /// What to do with a record of `topic` that the topic has no room for as it is: it is larger than the limit, or for a
    /// partition that is not there.
    pub(super) fn no_room(&mut self, topic: &str, blocked: Blocked, now: Instant) -> Verdict {
        if let Some(Topic::Usable { asked, .. }) = self.known.get(topic) {
            let again = *asked + ASK_LIMIT_AGAIN;
            if again > now {
                return Verdict::Wait { blocked: Some(blocked), until: Some(again) };
            }
        }
        self.ask(topic, Some(blocked))
    }

    /// How many partitions a topic has, if `partition` is none of them.
    pub(super) fn lacks(&self, topic: &str, partition: i32) -> Option<i32> {
        self.partitions(topic).filter(|partitions| partition >= *partitions)
    }

    /// How many partitions a topic has, as far as that is known.
    pub(super) fn partitions(&self, topic: &str) -> Option<i32> {
        match self.known.get(topic) {
            Some(Topic::Usable { partitions, .. }) => *partitions,
            _ => None,
        }
    }

    fn ask(&mut self, topic: &str, before: Option<Blocked>) -> Verdict {
        self.known.insert(topic.to_owned(), Topic::Asked { before: before.clone() });
        Verdict::LookUp { before }
    }

    /// Notes what a look-up found.
    pub(super) fn learn(&mut self, topic: String, found: Found, now: Instant) {
        let state = match found {
            Found::Usable { limit, partitions } => {
                if limit.is_some() {
                    self.guesses.remove(&topic);
                }
                Topic::Usable { limit, partitions, asked: now }
            }
            // asked only whether it has grown; the next record tells what is wrong
            Found::Unusable(_) if matches!(self.known.get(&topic), Some(Topic::Usable { .. })) => return,
            Found::Unusable(blocked) => Topic::Unusable { blocked, again: now + LOOK_AGAIN },
        };
        self.known.insert(topic, state);
    }

    /// Notes that the broker refused the writer; a look-up does not tell that.
    pub(super) fn deny(&mut self, topic: &str, blocked: Blocked, now: Instant) {
        let pause = match self.known.get(topic) {
            Some(Topic::Denied { pause, since, .. }) if now.duration_since(*since) < FORGIVEN_AFTER => {
                (*pause * 2).min(TRY_AGAIN.1)
            }
            _ => TRY_AGAIN.0,
        };
        self.known.insert(topic.to_owned(), Topic::Denied { blocked, again: now + pause, pause, since: now });
    }

    /// Why a topic was denied.
    pub(super) fn denial(&self, topic: &str) -> Option<Blocked> {
        match self.known.get(topic) {
            Some(Topic::Denied { blocked, .. }) => Some(blocked.clone()),
            _ => None,
        }
    }

    /// Forgets a topic, so that it is looked up again.
    pub(super) fn forget(&mut self, topic: &str) {
        self.known.remove(topic);
    }

    /// Takes back what was asked and will not be answered.
    pub(super) fn forget_unanswered(&mut self) {
        self.known.retain(|_, topic| !matches!(topic, Topic::Asked { .. }));
    }

    /// Notes that a batch of up to so many bytes was too large for a topic whose limit is not known. Gives the size to go on
    /// with; `None` if the limit is known, or no batch could be the cause.
    pub(super) fn guess(&mut self, topic: &str, refused_bytes: u64) -> Option<u64> {
        if matches!(self.known.get(topic), Some(Topic::Usable { limit: Some(_), .. })) {
            return None;
        }
        let guess = Some(refused_bytes / 2).filter(|guess| *guess >= SMALLEST_GUESS)?;
        self.guesses.insert(topic.to_owned(), guess);
        Some(guess)
    }

    /// The smallest limit that is known or guessed.
    pub(super) fn smallest_limit(&self) -> Option<u64> {
        let limit = |topic: &Topic| match topic {
            Topic::Usable { limit, .. } => *limit,
            _ => None,
        };
        self.known.values().filter_map(limit).chain(self.guesses.values().copied()).min()
    }
}

/// Why a text cannot be the name of a topic (Kafka's `Topic.validate`); `None` if it can.
pub(crate) fn illegal_name(topic: &str) -> Option<&'static str> {
    const LONGEST: usize = 249;
    match topic {
        "" => Some("it is empty"),
        "." | ".." => Some("\".\" and \"..\" are not allowed"),
        _ if topic.len() > LONGEST => Some("it is longer than 249 characters"),
        _ if !topic.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) => {
            Some("only ASCII letters, digits, \".\", \"_\" and \"-\" are allowed")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Reason;

    fn blocked(detail: &str) -> Blocked {
        Blocked { reason: Reason::TopicMissing, detail: detail.to_owned(), hint: String::new() }
    }

    #[test]
    fn a_missing_topic_is_looked_up_again_and_says_so_meanwhile() {
        let mut topics = Topics::default();
        let now = Instant::now();
        assert_eq!(topics.verdict("a", || now), Verdict::LookUp { before: None });
        assert_eq!(topics.verdict("a", || now), Verdict::Wait { blocked: None, until: None });
        topics.learn("a".to_owned(), Found::Unusable(blocked("gone")), now);
        assert!(matches!(topics.verdict("a", || now), Verdict::Wait { blocked: Some(_), until: Some(_) }));
        let later = now + LOOK_AGAIN;
        assert_eq!(topics.verdict("a", || later), Verdict::LookUp { before: Some(blocked("gone")) });
        assert_eq!(topics.verdict("a", || later), Verdict::Wait { blocked: Some(blocked("gone")), until: None });
        topics.learn("a".to_owned(), Found::Usable { limit: Some(5), partitions: Some(2) }, later);
        assert_eq!(topics.verdict("a", || later), Verdict::Send { limit: Some(5) });
        assert_eq!(topics.smallest_limit(), Some(5));
        assert_eq!((topics.lacks("a", 1), topics.lacks("a", 2), topics.lacks("b", 2)), (None, Some(2), None));
    }

    #[test]
    fn a_limit_is_asked_again_every_ten_seconds() {
        let mut topics = Topics::default();
        let now = Instant::now();
        topics.learn("a".to_owned(), Found::Usable { limit: Some(5), partitions: Some(2) }, now);
        let large = || blocked("large");
        assert!(matches!(topics.no_room("a", large(), now), Verdict::Wait { until: Some(_), .. }));
        let later = now + ASK_LIMIT_AGAIN;
        assert_eq!(topics.no_room("a", large(), later), Verdict::LookUp { before: Some(large()) });
        topics.forget_unanswered();
        assert_eq!(topics.verdict("a", || later), Verdict::LookUp { before: None });
    }

    #[test]
    fn a_limit_that_is_not_told_is_guessed() {
        let mut topics = Topics::default();
        let now = Instant::now();
        let usable = |limit| Found::Usable { limit, partitions: Some(1) };
        topics.learn("a".to_owned(), usable(None), now);
        assert_eq!((topics.guess("a", 1_000_000), topics.smallest_limit()), (Some(500_000), Some(500_000)));
        topics.forget("a");
        topics.learn("a".to_owned(), usable(None), now);
        assert_eq!((topics.guess("a", 500_000), topics.smallest_limit()), (Some(250_000), Some(250_000)));
        assert_eq!((topics.guess("a", 20_000), topics.smallest_limit()), (None, Some(250_000)));
        topics.learn("a".to_owned(), usable(Some(900_000)), now);
        assert_eq!((topics.guess("a", 800_000), topics.smallest_limit()), (None, Some(900_000)));
    }

    #[test]
    fn a_denied_topic_is_tried_at_growing_intervals() {
        let mut topics = Topics::default();
        let mut now = Instant::now();
        for pause in [5, 10, 20, 30, 30] {
            topics.deny("a", blocked("denied"), now);
            now += Duration::from_secs(pause - 1);
            assert!(matches!(topics.verdict("a", || now), Verdict::Wait { until: Some(_), .. }), "{pause}");
            now += Duration::from_secs(1);
            assert_eq!(topics.verdict("a", || now), Verdict::Try, "{pause}");
        }
        topics.forget("a");
        assert_eq!(topics.denial("a"), None);
    }

    #[test]
    fn knows_what_kafka_calls_a_topic() {
        let longest = "x".repeat(249);
        for name in ["a", "outbox.event.Order_1-x", "...", &longest] {
            assert_eq!(illegal_name(name), None, "{name}");
        }
        let too_long = "x".repeat(250);
        for name in ["", ".", "..", "a b", "ä", "a/b", "a\0", "a:b", &too_long] {
            assert!(illegal_name(name).is_some(), "{name}");
        }
    }
}
