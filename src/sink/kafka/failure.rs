//! What a failed record means: for its topic, for the next session, for the person who reads about it.

use rdkafka::error::RDKafkaErrorCode;

use super::context::Cause;
use crate::record::Record;
use crate::sink::{Blocked, SinkError};
use crate::state::Reason;

/// What to do about the record that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The broker refuses the batch that the record was in: find the guilty one by sending each alone.
    Isolate,
    /// The user may not write to the topic.
    Deny,
    /// The topic is not what it was: look it up again.
    LookUp,
    /// Nothing that the record or its topic is to blame for.
    Retry,
}

/// Chooses by the code.
pub(super) fn remedy(code: RDKafkaErrorCode) -> Remedy {
    use RDKafkaErrorCode as Code;
    match code {
        Code::TopicAuthorizationFailed => Remedy::Deny,
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownTopicId | Code::UnknownPartition => {
            Remedy::LookUp
        }
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidTopic
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType
        | Code::BadMessage
        | Code::BadCompression
        | Code::InvalidArgument => Remedy::Isolate,
        _ => Remedy::Retry,
    }
}

/// Whether a batch, or a record, is larger than its topic allows.
pub(super) fn is_too_large(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge)
}

/// The end of a session after which the next one will do better.
pub(super) fn restart(reason: Reason, message: String, at_once: bool) -> SinkError {
    SinkError::Restart { reason, message, at_once }
}

/// A record is for a partition that its topic does not have; `partitions` is how many it has, if that is known.
pub(super) fn lacks_partition(record: &Record<'_>, id: &str, partitions: Option<i32>) -> Blocked {
    let topic = record.topic;
    let Some(partition) = record.partition else {
        // chosen by the key's hash, by a number of partitions that does not hold any more
        return Blocked {
            reason: Reason::TopicMissing,
            detail: format!("topic \"{topic}\" has fewer partitions than before; it is looked up again"),
            hint: format!("if \"{topic}\" was made again on purpose, wait"),
        };
    };
    let count = partitions.map_or_else(String::new, |count| format!(": it has {count}"));
    Blocked {
        reason: Reason::TopicMissing,
        detail: format!("event \"{id}\" is for partition {partition}, which topic \"{topic}\" does not have{count}"),
        hint: format!(
            "kafka-topics --alter --topic {topic} --partitions {}; or correct what writes the column of record.partition",
            partition.saturating_add(1)
        ),
    }
}

/// The refusal of a record that stood alone.
pub(super) fn refused(cause: &Cause) -> SinkError {
    let Cause { topic, id, bytes, code, .. } = cause;
    let too_large = is_too_large(*code);
    let hint = match code {
        _ if too_large => format!("raise max.message.bytes of topic \"{topic}\""),
        RDKafkaErrorCode::InvalidRecord => {
            format!(
                "a compacted topic takes no record without a key; see the brokers' log for what \"{topic}\" demands"
            )
        }
        RDKafkaErrorCode::InvalidTimestamp => {
            format!("the record's time is outside of message.timestamp.before.max.ms or .after.max.ms of \"{topic}\"")
        }
        _ => "see the brokers' log".to_owned(),
    };
    SinkError::Refused {
        reason: if too_large { Reason::RecordTooLarge } else { Reason::RecordRefused },
        message: format!("the broker refused event \"{id}\" for topic \"{topic}\" ({bytes} bytes in memory): {code}"),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_partition_only_if_the_row_asked_for_one() {
        let words = |partition| {
            let record =
                Record { topic: "t", partition, key: None, payload: None, headers: Vec::new(), timestamp_ms: 0 };
            let blocked = lacks_partition(&record, "7", None);
            format!("{} [{}]", blocked.detail, blocked.hint)
        };
        assert!(words(Some(4)).contains("is for partition 4,") && words(Some(4)).contains("--partitions 5"));
        assert!(!words(None).contains("partition 0") && !words(None).contains("record.partition"), "{}", words(None));
    }

    #[test]
    fn only_what_lies_in_the_record_is_isolated() {
        assert_eq!(remedy(RDKafkaErrorCode::MessageSizeTooLarge), Remedy::Isolate);
        assert_eq!(remedy(RDKafkaErrorCode::InvalidRecord), Remedy::Isolate);
        assert_eq!(remedy(RDKafkaErrorCode::TopicAuthorizationFailed), Remedy::Deny);
        assert_eq!(remedy(RDKafkaErrorCode::UnknownTopicOrPartition), Remedy::LookUp);
        for code in [
            RDKafkaErrorCode::OutOfOrderSequenceNumber,
            RDKafkaErrorCode::UnknownProducerId,
            RDKafkaErrorCode::KafkaStorageError,
            RDKafkaErrorCode::ClusterAuthorizationFailed,
        ] {
            assert_eq!(remedy(code), Remedy::Retry, "{code:?}");
        }
    }
}
