//! The HTTP listener: metrics, liveness, readiness, and a page for people.
//!
//! | path | says |
//! | --- | --- |
//! | `/metrics` | all metrics, in the OpenMetrics text format |
//! | `/healthz` | 200 while the relay's loop turns, else 503: restart the process |
//! | `/readyz` | 200 while the relay publishes or stands by, else 503; the body says why, as JSON |
//! | `/` | the same as `/readyz`, for people |

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use humantime_serde::re::humantime::{format_duration, format_rfc3339_seconds};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::ConfigError;
use crate::metrics;
use crate::state::{Status, StatusBoard};

/// A loop without a beat for so long hangs: its longest wait between two beats is one second.
pub const HEARTBEAT_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for open connections when the process ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The media type of OpenMetrics 1.0; Prometheus asks for it by itself.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Sign of life of the relay's loop. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    begun: Instant,
    /// Milliseconds from `begun` to the last beat.
    last_ms: Arc<AtomicU64>,
}

impl Default for Heartbeat {
    /// The first beat is now.
    fn default() -> Self {
        Self { begun: Instant::now(), last_ms: Arc::default() }
    }
}

impl Heartbeat {
    /// Notes that the loop turns.
    pub fn beat(&self) {
        self.last_ms.store(millis(self.begun.elapsed()), Ordering::Relaxed);
    }

    /// Time since the last beat.
    #[must_use]
    pub fn age(&self) -> Duration {
        let now = millis(self.begun.elapsed());
        Duration::from_millis(now.saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What the listener tells about.
#[derive(Clone, Debug)]
pub struct Health {
    /// Name of the instance.
    pub name: String,
    /// The relay's state.
    pub board: StatusBoard,
    /// The relay's sign of life.
    pub heartbeat: Heartbeat,
}

/// The listener has failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Connections can no longer be accepted.
    #[error("the HTTP listener has failed")]
    Serve(#[source] std::io::Error),
}

/// Takes the port. Done before the relay starts, so that a taken port ends the process before anything is published.
///
/// # Errors
/// [`ConfigError::Listen`] if the address cannot be used.
pub async fn bind(listen: SocketAddr) -> Result<TcpListener, ConfigError> {
    TcpListener::bind(listen).await.map_err(|source| ConfigError::Listen { address: listen, source })
}

/// Answers requests until `stop` is cancelled. Adds the metrics of the state to `registry`.
///
/// # Errors
/// [`HttpError`] if connections can no longer be accepted.
pub async fn serve(
    listener: TcpListener,
    mut registry: Registry,
    health: Health,
    stop: CancellationToken,
) -> Result<(), HttpError> {
    metrics::register_status(&mut registry, health.board.clone());
    let server = axum::serve(listener, router(registry, health)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(CLOSE_TIMEOUT).await;
    };
    tokio::select! {
        result = server.into_future() => result.map_err(HttpError::Serve),
        () = too_late => Ok(()),
    }
}

struct Shown {
    registry: Registry,
    health: Health,
}

fn router(registry: Registry, health: Health) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(exposition))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(Shown { registry, health }))
}

async fn exposition(State(shown): State<Arc<Shown>>) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, &shown.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPENMETRICS)], body).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n").into_response(),
    }
}

async fn healthz(State(shown): State<Arc<Shown>>) -> Response {
    let (code, body) = liveness(shown.health.heartbeat.age(), SystemTime::now());
    (code, [(CACHE_CONTROL, "no-store")], body).into_response()
}

async fn readyz(State(shown): State<Arc<Shown>>) -> Response {
    let status = shown.health.board.get();
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (ready_code(&status), headers, readiness(&shown.health.name, &status)).into_response()
}

async fn page(State(shown): State<Arc<Shown>>) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let headers = [(CONTENT_SECURITY_POLICY, policy), (CACHE_CONTROL, "no-store")];
    let status = shown.health.board.get();
    (headers, Html(html(&shown.health.name, &status, SystemTime::now()))).into_response()
}

fn ready_code(status: &Status) -> StatusCode {
    if status.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn liveness(age: Duration, now: SystemTime) -> (StatusCode, String) {
    if age <= HEARTBEAT_LIMIT {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let since = now.checked_sub(age).unwrap_or(now);
    (StatusCode::SERVICE_UNAVAILABLE, format!("loop hangs since {}\n", rfc3339(since)))
}

fn readiness(name: &str, status: &Status) -> String {
    let side = |position: &Option<crate::position::Position>| position.as_ref().map(ToString::to_string);
    let body = json!({
        "name": name,
        "ready": status.is_ready(),
        "phase": status.phase.as_str(),
        "reason": status.reason.code(),
        "detail": status.detail,
        "hint": status.hint,
        "gap": status.gap.as_ref().map(|gap| json!({ "from": side(&gap.from), "to": side(&gap.to) })),
        "since": rfc3339(status.since),
    });
    format!("{body}\n")
}

fn html(name: &str, status: &Status, now: SystemTime) -> String {
    let for_so_long = now.duration_since(status.since).unwrap_or_default();
    let seconds = Duration::from_secs(for_so_long.as_secs());
    let gap = status.gap.as_ref().map(ToString::to_string);
    let rows = [
        ("State", Some(status.phase.as_str().to_owned())),
        ("Reason", Some(status.reason.code().to_owned())),
        ("Detail", Some(status.detail.clone())),
        ("What to do", status.hint.clone()),
        ("Events may be missing", gap),
        ("Since", Some(format!("{} ({})", rfc3339(status.since), format_duration(seconds)))),
    ];
    let mut table = String::new();
    for (label, value) in rows {
        if let Some(value) = value {
            table.push_str(&format!("<tr><th>{label}</th><td>{}</td></tr>\n", escape(&value)));
        }
    }
    let (word, colour) = if status.is_ready() { ("ready", "#176d2e") } else { ("not ready", "#b3261e") };
    let name = escape(name);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"refresh\" content=\"5\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{name}: {word}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:50rem;padding:0 1rem}}\
         strong{{color:{colour}}}th{{text-align:left;vertical-align:top;padding-right:1rem;white-space:nowrap}}\
         td{{white-space:pre-wrap;overflow-wrap:anywhere}}</style>\n</head>\n<body>\n\
         <h1>outboxd {name}: <strong>{word}</strong></h1>\n<table>\n{table}</table>\n\
         <p><a href=\"/readyz\">readyz</a> <a href=\"/healthz\">healthz</a> <a href=\"/metrics\">metrics</a></p>\n\
         </body>\n</html>\n"
    )
}

/// A time in UTC; a clock that stands before 1970 shows 1970.
fn rfc3339(time: SystemTime) -> String {
    format_rfc3339_seconds(time.max(SystemTime::UNIX_EPOCH)).to_string()
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::position::{Lsn, Position};
    use crate::state::{Gap, Phase, Reason};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    /// 2024-02-29 12:00:00 UTC.
    fn leap_day() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_208_000)
    }

    fn lost() -> Status {
        let mut status = Status::new(Phase::Terminal, Reason::SlotInvalidated, "slot \"<b>\" & more");
        status.hint = Some("look".to_owned());
        status.gap = Some(Gap { from: Some(Position::Postgres(Lsn(0x16_B374_D848))), to: None });
        status.since = leap_day();
        status
    }

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn local() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[tokio::test]
    async fn the_listener_tells_the_truth_and_ends_when_asked() {
        let board = StatusBoard::default();
        let health = Health { name: "shop".to_owned(), board: board.clone(), heartbeat: Heartbeat::default() };
        let listener = bind(local()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, Metrics::new("shop", &[]).1, health, stop.clone()));

        let answer = ask(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("\"phase\":\"connecting\",\"reason\":\"starting\""), "{answer}");
        assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));

        board.set(Status::new(Phase::Standby, Reason::Standby, "another instance publishes"));
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let metrics = ask(address, "/metrics").await;
        assert!(metrics.contains(OPENMETRICS), "{metrics}");
        assert!(metrics.contains("outbox_ready{name=\"shop\"} 1\n"), "{metrics}");
        assert!(ask(address, "/").await.contains("<title>shop: ready</title>"));
        assert!(ask(address, "/nothing").await.starts_with("HTTP/1.1 404"));

        // A connection that never asks does not hold up the end.
        let _idle = TcpStream::connect(address).await.unwrap();
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_taken_port_is_a_configuration_error() {
        let listener = bind(local()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        let (line, hint) = error.lines().swap_remove(0);
        assert!(line.starts_with(&format!("cannot listen on {address} (option \"http.listen\"): ")), "{line}");
        assert!(hint.unwrap().contains("--http-listen"));
    }

    #[test]
    fn readiness_is_json_for_machines() {
        assert_eq!(
            readiness("shop", &lost()),
            "{\"name\":\"shop\",\"ready\":false,\"phase\":\"terminal\",\"reason\":\"slot_invalidated\",\
             \"detail\":\"slot \\\"<b>\\\" & more\",\"hint\":\"look\",\"gap\":{\"from\":\"16/B374D848\",\"to\":null},\
             \"since\":\"2024-02-29T12:00:00Z\"}\n"
        );
    }

    #[test]
    fn the_page_escapes_what_it_shows() {
        let page = html("<i>", &lost(), leap_day() + Duration::from_secs(90));
        assert!(page.contains("<title>&lt;i&gt;: not ready</title>"), "{page}");
        assert!(page.contains("slot &quot;&lt;b&gt;&quot; &amp; more"), "{page}");
        assert!(page.contains("2024-02-29T12:00:00Z (1m 30s)"), "{page}");
        assert!(page.contains("16/B374D848 to ?"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    }

    #[test]
    fn a_loop_without_a_beat_hangs() {
        let now = leap_day();
        assert_eq!(liveness(HEARTBEAT_LIMIT, now), (StatusCode::OK, "ok\n".to_owned()));
        let (code, body) = liveness(Duration::from_secs(60), now);
        assert_eq!((code.as_u16(), body.as_str()), (503, "loop hangs since 2024-02-29T11:59:00Z\n"));
    }

    #[test]
    fn beats_are_shared_by_clones() {
        let heartbeat = Heartbeat::default();
        let before = Heartbeat { begun: heartbeat.begun, last_ms: Arc::clone(&heartbeat.last_ms) };
        std::thread::sleep(Duration::from_millis(20));
        assert!(before.age() >= Duration::from_millis(15));
        heartbeat.beat();
        assert!(before.age() < Duration::from_millis(15));
    }
}
