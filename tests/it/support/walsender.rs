//! A foreign user of a slot: a session that streams from it and does nothing else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::postgres::Database;

/// Holds a slot until it is dropped.
pub(crate) struct SlotHolder {
    stream: TcpStream,
}

impl SlotHolder {
    /// Begins to stream from the slot with the given publication.
    #[track_caller]
    pub(crate) fn start(database: &Database, slot: &str, publication: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", database.server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut holder = Self { stream };
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        for text in ["user", "postgres", "database", &database.name, "replication", "database", ""] {
            startup.extend_from_slice(text.as_bytes());
            startup.push(0);
        }
        holder.send(&startup);
        holder.wait_for(b'Z');
        let command = format!(
            "START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names '\"{publication}\"')\0"
        );
        holder.stream.write_all(b"Q").unwrap();
        holder.send(command.as_bytes());
        holder.wait_for(b'W');
        holder
    }

    fn send(&mut self, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap();
        self.stream.write_all(&length.to_be_bytes()).unwrap();
        self.stream.write_all(body).unwrap();
    }

    #[track_caller]
    fn wait_for(&mut self, tag: u8) {
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; usize::try_from(length).unwrap() - 4];
            self.stream.read_exact(&mut body).unwrap();
            assert_ne!(head[0], b'E', "{}", String::from_utf8_lossy(&body));
            if head[0] == tag {
                return;
            }
        }
    }
}
