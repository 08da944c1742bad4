//! Any bytes from the server, during the login or in the stream: the client must not panic, must not hang, and must
//! give an error at the end. The server is a socket on loopback that sends the input and closes its side.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use outboxd::config::PostgresConfig;
use outboxd::config::secret::Secret;
use outboxd::source::postgres::client::{Frame, ReplicationClient};
use outboxd::source::postgres::pgoutput;
use outboxd::source::postgres::settings::ConnectSettings;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// AuthenticationOk, BackendKeyData, ReadyForQuery, then CopyBothResponse as the answer to the command.
const STREAMING: &[u8] = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05IW\0\0\0\x07\0\0\0";

/// Longest input: it must fit into the socket's buffers, since nobody reads while it is written.
const MAX_BYTES: usize = 64 << 10;

thread_local! {
    static WORLD: (Runtime, TcpListener, ConnectSettings) = world();
}

fn world() -> (Runtime, TcpListener, ConnectSettings) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("postgres://u:p@127.0.0.1:{}/d?sslmode=disable", listener.local_addr().unwrap().port());
    let config = PostgresConfig { url: Secret::new(url), ..PostgresConfig::default() };
    let settings = ConnectSettings::new(&config, "fuzz").unwrap();
    (runtime, listener, settings)
}

async fn serve(listener: &TcpListener, input: &[u8], streaming: bool) -> tokio::net::TcpStream {
    let (mut socket, _) = listener.accept().await.unwrap();
    if streaming {
        socket.write_all(STREAMING).await.unwrap();
    }
    socket.write_all(input).await.unwrap();
    socket.shutdown().await.unwrap();
    // kept open by the caller: closing it with unread bytes would reset the connection
    socket
}

async fn read(settings: &ConnectSettings) {
    let Ok(mut client) = ReplicationClient::connect(settings, &[]).await else { return };
    if !matches!(client.start_replication("START_REPLICATION").await, Ok(Ok(()))) {
        return;
    }
    let mut cells = Vec::new();
    loop {
        match client.next_frame() {
            Ok(Some(Frame::Data(data))) => {
                let _ = pgoutput::decode(&data, &mut cells);
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                if client.fill().await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, input)) = input.split_first() else { return };
    if input.len() > MAX_BYTES {
        return;
    }
    WORLD.with(|(runtime, listener, settings)| {
        runtime.block_on(async {
            let both = async { tokio::join!(serve(listener, input, first & 1 == 1), read(settings)) };
            tokio::time::timeout(Duration::from_secs(5), both).await.expect("the client hangs");
        });
    });
});
