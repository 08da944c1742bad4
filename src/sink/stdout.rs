//! Standard output: one JSON line per record, for trying out and for comparing.
//!
//! ```json
//! {"topic":"outbox.event.order","partition":null,"key":"7","headers":[["id","…"],["trace",null]],"payload":"{}","timestamp_ms":1}
//! ```
//!
//! A key, payload or header value is a string if its bytes are UTF-8, `{"hex":"00ff"}` if they are not, and null if
//! there is none. A record counts as acknowledged when its line has been flushed. The position is kept in a file that is
//! replaced atomically: a temporary file beside it, fsync, rename, fsync of the directory.

use std::fs::File;
use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tokio::task::JoinHandle;

use crate::config::StdoutConfig;
use crate::position::Position;
use crate::record::Record;
use crate::sink::positions::PositionRecord;
use crate::sink::{Ack, Acknowledgements, Blocked, Enqueued, Ordinal, Sink, SinkError};
use crate::state::Reason;

/// Lines are gathered up to this size before they are written, unless they are acknowledged before.
const BUFFER_BYTES: usize = 64 << 10;

/// The sink.
pub struct StdoutSink<W: Write + Send = Stdout> {
    output: BufWriter<W>,
    path: PathBuf,
    acks: Vec<Ack>,
    committing: Option<JoinHandle<io::Result<Position>>>,
}

impl StdoutSink {
    /// Prepares a sink over this process's standard output.
    #[must_use]
    pub fn new(config: &StdoutConfig) -> Self {
        Self::with_output(config, io::stdout())
    }
}

impl<W: Write + Send> StdoutSink<W> {
    /// Prepares a sink over any output.
    #[must_use]
    pub fn with_output(config: &StdoutConfig, output: W) -> Self {
        Self {
            output: BufWriter::with_capacity(BUFFER_BYTES, output),
            path: config.positions_file.clone(),
            acks: Vec::new(),
            committing: None,
        }
    }

    /// Removes the position record.
    ///
    /// # Errors
    /// [`SinkError::Configuration`] if the file cannot be removed.
    pub async fn forget(&mut self) -> Result<(), SinkError> {
        match tokio::fs::remove_file(&self.path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(bad_file(&self.path, &format!("could not be removed: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn written(&self, outcome: Result<io::Result<Position>, tokio::task::JoinError>) -> Result<Position, SinkError> {
        let outcome = outcome.unwrap_or_else(|error| Err(io::Error::other(error)));
        outcome.map_err(|error| SinkError::Restart {
            reason: Reason::SinkUnreachable,
            message: format!("the positions file \"{}\" could not be written: {error}", self.path.display()),
            at_once: false,
        })
    }
}

impl<W: Write + Send> Sink for StdoutSink<W> {
    async fn open(&mut self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        self.acks.clear();
        self.stored_position(instance).await
    }

    async fn stored_position(&mut self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        if let Some(committing) = self.committing.take() {
            // its outcome is in the file
            let _ = committing.await;
        }
        let text = match tokio::fs::read(&self.path).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(bad_file(&self.path, &format!("could not be read: {error}"))),
        };
        let record = PositionRecord::parse(&text, instance);
        record.map(Some).map_err(|why| bad_file(&self.path, &format!("is not understood: {why}")))
    }

    async fn close(&mut self, timeout: Duration) {
        // a closed pipe was, or will be, told by the next call that writes
        let _ = self.output.flush();
        if let Some(committing) = self.committing.take() {
            let _ = tokio::time::timeout(timeout, committing).await;
        }
    }

    fn enqueue(&mut self, record: &Record<'_>, ordinal: Ordinal) -> Result<Enqueued, SinkError> {
        serde_json::to_writer(&mut self.output, &Line(record))
            .map_err(io::Error::from)
            .map_err(|error| closed(&error))?;
        self.output.write_all(b"\n").map_err(|error| closed(&error))?;
        let bytes = record.window_bytes();
        match self.acks.last_mut() {
            Some(ack) if ack.ordinal == ordinal && ack.records < u32::MAX => {
                ack.records += 1;
                ack.bytes += bytes;
            }
            _ => self.acks.push(Ack { ordinal, records: 1, bytes }),
        }
        Ok(Enqueued::Queued)
    }

    async fn acknowledged(&mut self, into: &mut Acknowledgements) -> Result<(), SinkError> {
        if !self.acks.is_empty() {
            self.output.flush().map_err(|error| closed(&error))?;
            into.acks.append(&mut self.acks);
            // A position that is written must not wait for a pause between records.
            if !self.committing.as_ref().is_some_and(JoinHandle::is_finished) {
                return Ok(());
            }
        }
        // Nothing can be enqueued while this waits: it holds the sink.
        let Some(committing) = &mut self.committing else { return std::future::pending().await };
        let outcome = committing.await;
        self.committing = None;
        into.committed = Some(self.written(outcome)?);
        Ok(())
    }

    fn commit(&mut self, record: &PositionRecord) -> Result<bool, SinkError> {
        if self.committing.is_some() {
            return Ok(false);
        }
        self.output.flush().map_err(|error| closed(&error))?;
        let (path, record) = (self.path.clone(), record.clone());
        self.committing = Some(tokio::task::spawn_blocking(move || replace(&path, &record).map(|()| record.position)));
        Ok(true)
    }

    fn blocked(&self) -> Option<Blocked> {
        None
    }

    fn is_connected(&self) -> bool {
        true
    }
}

/// Replaces the file, so that after a crash it holds the old record or the new one.
fn replace(path: &Path, record: &PositionRecord) -> io::Result<()> {
    let mut name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let mut file = File::create(&temporary)?;
    serde_json::to_writer(&mut file, record)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn bad_file(path: &Path, why: &str) -> SinkError {
    SinkError::Configuration {
        message: format!("the positions file \"{}\" {why}", path.display()),
        hint: "name another file in sink.stdout.positions-file, or see what this one is".to_owned(),
    }
}

fn closed(error: &io::Error) -> SinkError {
    SinkError::Configuration {
        message: format!("standard output could not be written: {error}"),
        hint: "keep the reader of the pipe running".to_owned(),
    }
}

/// A record as a JSON object.
struct Line<'a>(&'a Record<'a>);

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.0;
        let headers: Vec<_> =
            record.headers.iter().map(|header| (header.key, header.value.as_deref().map(Text))).collect();
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("topic", record.topic)?;
        map.serialize_entry("partition", &record.partition)?;
        map.serialize_entry("key", &record.key.as_deref().map(Text))?;
        map.serialize_entry("headers", &headers)?;
        map.serialize_entry("payload", &record.payload.as_deref().map(Text))?;
        map.serialize_entry("timestamp_ms", &record.timestamp_ms)?;
        map.end()
    }
}

/// Bytes as a JSON string if they are UTF-8, as `{"hex":…}` if not.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("hex", &hex)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::position::Lsn;
    use crate::record::Header;
    use crate::sink::positions::{FORMAT, SourceIdentity};

    fn record<'a>(key: Option<&'a [u8]>, payload: Option<&'a [u8]>) -> Record<'a> {
        Record {
            topic: "orders",
            partition: None,
            key: key.map(Cow::Borrowed),
            payload: payload.map(Cow::Borrowed),
            headers: vec![Header { key: "id", value: Some(Cow::Borrowed(b"1")) }, Header { key: "none", value: None }],
            timestamp_ms: 5,
        }
    }

    fn position(lsn: u64) -> PositionRecord {
        let source = SourceIdentity::Postgres {
            system_id: "7".to_owned(),
            timeline: 1,
            database: "shop".to_owned(),
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            publication_oid: 1,
            publication_xmin: None,
            tables: Vec::new(),
            schemas: Vec::new(),
        };
        let position = Position::Postgres(Lsn(lsn));
        PositionRecord {
            version: FORMAT,
            instance: "shop".to_owned(),
            generation: 1,
            source,
            position: position.clone(),
            verified: position,
        }
    }

    #[tokio::test]
    async fn writes_a_line_per_record_and_acknowledges_it() {
        let mut sink = StdoutSink::with_output(&StdoutConfig::default(), Vec::new());
        sink.enqueue(&record(Some(b"k"), Some(b"{\"a\":1}")), 3).unwrap();
        sink.enqueue(&record(None, None), 3).unwrap();
        sink.enqueue(&record(Some(b""), Some(b"\xff\x00")), 4).unwrap();
        let mut into = Acknowledgements::default();
        sink.acknowledged(&mut into).await.unwrap();
        assert_eq!(into.acks.iter().map(|ack| (ack.ordinal, ack.records)).collect::<Vec<_>>(), [(3, 2), (4, 1)]);
        let text = String::from_utf8(sink.output.get_ref().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                r#"{"topic":"orders","partition":null,"key":"k","headers":[["id","1"],["none",null]],"payload":"{\"a\":1}","timestamp_ms":5}"#,
                r#"{"topic":"orders","partition":null,"key":null,"headers":[["id","1"],["none",null]],"payload":null,"timestamp_ms":5}"#,
                r#"{"topic":"orders","partition":null,"key":"","headers":[["id","1"],["none",null]],"payload":{"hex":"ff00"},"timestamp_ms":5}"#,
            ]
        );
    }

    #[tokio::test]
    async fn keeps_the_position_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = StdoutConfig { positions_file: folder.path().join("position.json") };
        let mut sink = StdoutSink::with_output(&config, Vec::new());
        assert_eq!(sink.open("shop").await.unwrap(), None);
        for lsn in [1, 2] {
            assert!(sink.commit(&position(lsn)).unwrap());
            assert!(!sink.commit(&position(9)).unwrap(), "one at a time");
            let mut into = Acknowledgements::default();
            sink.acknowledged(&mut into).await.unwrap();
            assert_eq!(into.committed, Some(Position::Postgres(Lsn(lsn))));
        }
        let mut again = StdoutSink::with_output(&config, Vec::new());
        assert_eq!(again.open("shop").await.unwrap(), Some(position(2)));
        let error = again.open("other").await.unwrap_err();
        assert!(error.to_string().contains("instance \"shop\""), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[tokio::test]
    async fn a_closed_pipe_is_an_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut sink = StdoutSink::with_output(&StdoutConfig::default(), Closed);
        sink.enqueue(&record(None, None), 1).unwrap();
        let error = sink.acknowledged(&mut Acknowledgements::default()).await.unwrap_err();
        assert!(matches!(error, SinkError::Configuration { .. }), "{error}");
    }
}
