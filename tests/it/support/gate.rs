//! A way to a server that holds a message up: what is behind it waits until the gate is opened.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What the gate has seen.
#[derive(Default)]
struct State {
    is_open: bool,
    is_held: bool,
}

/// A port that leads to the server's.
pub(crate) struct Gate {
    pub(crate) port: u16,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Gate {
    /// Leads to `port`, and holds up what a client sends from the words `held` on. The connection must not be encrypted.
    #[track_caller]
    pub(crate) fn start(port: u16, held: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let gate = Self { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        let shared = Arc::clone(&gate.shared);
        // ends with the process
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (back, forth) = (pair(&server, &client), pair(&client, &server));
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || carry(back, |_| {}));
                std::thread::spawn(move || {
                    carry(forth, |bytes| {
                        if bytes.windows(held.len()).any(|words| words == held.as_bytes()) {
                            wait(&shared);
                        }
                    });
                });
            }
        });
        gate
    }

    /// Whether something is held up.
    pub(crate) fn holds(&self) -> bool {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).is_held
    }

    /// Lets everything through from now on.
    pub(crate) fn open(&self) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).is_open = true;
        self.shared.1.notify_all();
    }
}

fn pair(from: &TcpStream, to: &TcpStream) -> (TcpStream, TcpStream) {
    (from.try_clone().unwrap(), to.try_clone().unwrap())
}

fn wait((state, opened): &(Mutex<State>, Condvar)) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.is_held = true;
    while !state.is_open {
        state = opened.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn carry((mut from, mut to): (TcpStream, TcpStream), before: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        before(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
