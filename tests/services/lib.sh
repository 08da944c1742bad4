# Shared helpers for the scripts in this folder. Sourced, not run.

die() { echo "${0##*/}: $*" >&2; exit 1; }

# Prints the java to use: $JAVA_HOME's, else the one on PATH.
java_bin() {
  if [[ -n "${JAVA_HOME:-}" ]]; then echo "$JAVA_HOME/bin/java"
  else command -v java || die "no java: set JAVA_HOME"; fi
}

# once STAMP DIR COMMAND...: runs COMMAND with a new folder as its last argument and moves that folder to DIR, unless
# DIR is there already, made for the same STAMP. Safe when several processes want the same DIR.
once() {
  local stamp=$1 dir=$2 fresh
  shift 2
  mkdir -p "$(dirname "$dir")"
  (
    flock 9
    [[ "$(cat "$dir/.complete" 2>/dev/null)" == "$stamp" ]] && exit 0
    fresh=$(mktemp -d "$dir.XXXXXX")
    chmod 755 "$fresh"
    "$@" "$fresh" || { rm -rf "$fresh"; exit 1; }
    echo "$stamp" > "$fresh/.complete"
    rm -rf "$dir"
    mv "$fresh" "$dir"
  ) 9> "$dir.lock"
}

# running PIDFILE: true while the process that PIDFILE names is alive (a zombie is not).
running() {
  local pid
  [[ -s "$1" ]] || return 1
  pid=$(head -n 1 "$1")
  kill -0 "$pid" 2>/dev/null && ! grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"
}

# stop_pid PIDFILE SECONDS: SIGTERM, wait, SIGKILL after SECONDS. True if it ended by itself.
stop_pid() {
  local file=$1 limit=$2 pid i
  running "$file" || { rm -f "$file"; return 0; }
  pid=$(head -n 1 "$file")
  kill "$pid" 2>/dev/null || true
  kill -CONT "$pid" 2>/dev/null || true # one that a test has frozen ends too
  for ((i = 0; i < limit * 20; i++)); do
    running "$file" || { rm -f "$file"; return 0; }
    sleep 0.05
  done
  kill -9 "$pid" 2>/dev/null || true
  rm -f "$file"
  return 1
}

# port_open PORT: true when something listens on 127.0.0.1:PORT.
port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
