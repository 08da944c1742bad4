//! Standard output: one JSON line per record, for trying out and for comparing.
//!
//! ```json
//! {"topic":"outbox.event.order","partition":null,"key":"7","headers":[["id","…"],["trace",null]],"payload":"{}","timestamp_ms":1}
//! ```
//!
//! A key, payload or header value is a string if its bytes are UTF-8, `{"hex":"00ff"}` if they are not, and null if
//! there is none. A record counts as acknowledged when its line has been flushed: a reader that does not read stops the
//! publishing, and nothing else. When nobody can read any more, the relay ends. The position is kept in a file that is
//! replaced atomically: a temporary file beside it, fsync, rename, fsync of the directory.

use std::fs::File;
use std::io::{self, Stdout, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::output::Output;
use crate::config::StdoutConfig;
use crate::position::Position;
use crate::record::Record;
use crate::sink::positions::PositionRecord;
use crate::sink::{Acknowledgements, Blocked, Enqueued, Ordinal, Sink, SinkError};
use crate::state::Reason;

/// The sink.
pub struct StdoutSink<W = Stdout> {
    output: Output<W>,
    /// Whether `output` is this process's standard output.
    is_ours: bool,
    /// The pipe, if it is one: it tells when its reader has gone.
    pipe: Option<pipe::Sender>,
    path: PathBuf,
    committing: Option<JoinHandle<io::Result<Position>>>,
}

impl StdoutSink {
    /// Prepares a sink over this process's standard output.
    #[must_use]
    pub fn new(config: &StdoutConfig) -> Self {
        Self { is_ours: true, ..Self::with_output(config, io::stdout()) }
    }
}

impl<W: Write + Send + 'static> StdoutSink<W> {
    /// Prepares a sink over any output.
    #[must_use]
    pub fn with_output(config: &StdoutConfig, output: W) -> Self {
        Self {
            output: Output::new(output),
            is_ours: false,
            pipe: None,
            path: config.positions_file.clone(),
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

impl<W: Write + Send + 'static> Sink for StdoutSink<W> {
    async fn open(&mut self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        self.output.forget();
        if self.is_ours && self.pipe.is_none() {
            self.pipe = own_pipe();
        }
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
        self.output.drain(timeout).await;
        if let Some(committing) = self.committing.take() {
            let _ = tokio::time::timeout(timeout, committing).await;
        }
    }

    fn enqueue(&mut self, record: &Record<'_>, ordinal: Ordinal) -> Result<Enqueued, SinkError> {
        let taken = self.output.add(ordinal, record.window_bytes(), |line| {
            serde_json::to_writer(&mut *line, &Line(record))?;
            line.push(b'\n');
            Ok(())
        });
        Ok(if taken.map_err(|error| not_written(&error))? { Enqueued::Queued } else { Enqueued::Full })
    }

    async fn acknowledged(&mut self, into: &mut Acknowledgements) -> Result<(), SinkError> {
        loop {
            tokio::select! {
                biased;
                // a position that is written must not wait for a pause between records
                outcome = done(&mut self.committing) => {
                    self.committing = None;
                    into.committed = Some(self.written(outcome)?);
                    return Ok(());
                }
                written = self.output.written(&mut into.acks) => {
                    written.map_err(|error| not_written(&error))?;
                    // nothing, if it was of the session before
                    if !into.acks.is_empty() {
                        return Ok(());
                    }
                }
                () = reader_gone(self.pipe.as_ref()) => return Err(closed()),
            }
        }
    }

    fn commit(&mut self, record: &PositionRecord) -> Result<bool, SinkError> {
        if self.committing.is_some() {
            return Ok(false);
        }
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

/// Nobody can read what would be written.
fn closed() -> SinkError {
    SinkError::Closed { message: "standard output is closed: nobody reads any more".to_owned() }
}

fn not_written(error: &io::Error) -> SinkError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return closed();
    }
    SinkError::Restart {
        reason: Reason::SinkUnreachable,
        message: format!("standard output could not be written: {error}"),
        at_once: false,
    }
}

/// This process's standard output, if that is a pipe, to be watched only: what is written to it may go on to block. Without
/// it a reader that has gone is noticed with the next record.
fn own_pipe() -> Option<pipe::Sender> {
    let file = File::from(io::stdout().as_fd().try_clone_to_owned().ok()?);
    let is_pipe = file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    if is_pipe { pipe::Sender::from_file_unchecked(file).ok() } else { None }
}

/// Waits until the pipe has no reader. Cancel-safe.
async fn reader_gone(pipe: Option<&pipe::Sender>) {
    if let Some(pipe) = pipe
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Waits for a task, if there is one. Cancel-safe.
async fn done<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
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
    use std::sync::{Arc, Mutex};

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

    /// An output that the test can read.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn writes_a_line_per_record_and_acknowledges_it() {
        let output = Shared::default();
        let mut sink = StdoutSink::with_output(&StdoutConfig::default(), output.clone());
        sink.enqueue(&record(Some(b"k"), Some(b"{\"a\":1}")), 3).unwrap();
        sink.enqueue(&record(None, None), 3).unwrap();
        sink.enqueue(&record(Some(b""), Some(b"\xff\x00")), 4).unwrap();
        let mut into = Acknowledgements::default();
        sink.acknowledged(&mut into).await.unwrap();
        assert_eq!(into.acks.iter().map(|ack| (ack.ordinal, ack.records)).collect::<Vec<_>>(), [(3, 2), (4, 1)]);
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
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
        assert!(matches!(error, SinkError::Closed { .. }), "{error}");
    }

    /// A reader that takes nothing holds up neither this thread nor the memory's bound, and nothing is acknowledged before
    /// it is written.
    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_up_nothing_else() {
        /// Blocks until the test lets it go on.
        struct Blocked(Shared, std::sync::mpsc::Receiver<()>);
        impl Write for Blocked {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.1.recv();
                self.0.write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (output, (release, blocked)) = (Shared::default(), std::sync::mpsc::channel());
        let mut sink = StdoutSink::with_output(&StdoutConfig::default(), Blocked(output.clone(), blocked));
        let payload = vec![b'x'; 10_000];
        let mut taken = 0;
        while sink.enqueue(&record(None, Some(&payload)), 1).unwrap() == Enqueued::Queued {
            taken += 1;
            assert!(taken < 1_000, "there is no bound");
        }
        let mut into = Acknowledgements::default();
        let early = tokio::time::timeout(Duration::from_millis(100), sink.acknowledged(&mut into)).await;
        assert!(early.is_err() && into.acks.is_empty() && output.0.lock().unwrap().is_empty());
        drop(release);
        while into.acks.iter().map(|ack| ack.records).sum::<u32>() < taken {
            sink.acknowledged(&mut into).await.unwrap();
        }
        let lines = output.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(u32::try_from(lines).unwrap(), taken);
    }

    /// What a session has left is not the next one's: neither its lines nor its acknowledgements.
    #[tokio::test]
    async fn a_session_begins_with_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let config = StdoutConfig { positions_file: folder.path().join("position.json") };
        let output = Shared::default();
        let mut sink = StdoutSink::with_output(&config, output.clone());
        sink.enqueue(&record(None, Some(b"before")), 0).unwrap();
        sink.open("shop").await.unwrap();
        sink.enqueue(&record(None, Some(b"after")), 0).unwrap();
        let mut into = Acknowledgements::default();
        sink.acknowledged(&mut into).await.unwrap();
        assert_eq!(into.acks.iter().map(|ack| ack.records).sum::<u32>(), 1);
        assert!(!String::from_utf8_lossy(&output.0.lock().unwrap()).contains("before"));
    }
}
