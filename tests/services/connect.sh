#!/usr/bin/env bash
# Kafka Connect with Debezium on loopback: standalone with one connector, or a worker that takes connectors by REST.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib.sh"

usage() {
  cat <<'USAGE'
usage: connect.sh fetch               fetch the jars only
       connect.sh start DIR BOOTSTRAP CONNECTOR.properties
       connect.sh start DIR BOOTSTRAP  a distributed worker without connectors; returns once it answers
       connect.sh stop DIR            SIGTERM, wait; prints CPU seconds and memory first
       connect.sh kill DIR            SIGKILL
       connect.sh stat DIR            CPU seconds, RSS, peak RSS of the running worker
DIR keeps worker.properties, the offsets file, the log and stat files. "start" returns once
the JVM is launched, or with WAIT=1 once the connector's task streams changes. A distributed worker keeps its offsets in
the topic connect-offsets and its connectors in connect-configs: a new one on the same brokers goes on with them.
In CONNECTOR.properties ${NAME} is replaced by the environment variable of that name
(a name that is not set stays, so ${routedByValue} survives).
environment:
  JAVA_HOME        Java 17 or later (else: java on PATH)
  CONNECT_FOR      mariadb: with Debezium's MariaDB connector, in place of those for PostgreSQL and MySQL
  CONNECT_JARS     folder for the jars, may be shared (default: ${OUTBOX_TEST_CACHE:-$HOME/.cache/outboxd-tests}/connect-jars,
                   with CONNECT_FOR=mariadb connect-mariadb-jars)
  CONNECT_JVM      JVM options (default: "-Xms256M -Xmx2G -XX:+UseG1GC", as Kafka's own script)
  CONNECT_PORT     REST port on 127.0.0.1 (default: 58083)
  WORKER_PROPS     extra worker.properties lines, separated by newlines
  WAIT             1: wait until the task says that it streams (up to 120 s)
USAGE
}
set=connect${CONNECT_FOR:+-$CONNECT_FOR}
jars=${CONNECT_JARS:-${OUTBOX_TEST_CACHE:-$HOME/.cache/outboxd-tests}/$set-jars}
fetch_into() {
  echo "fetching Kafka Connect and Debezium" >&2
  mvn -q -B -f "$here/$set/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$1" >&2
}
fetch() { once "$(sha256sum "$here/$set/pom.xml" | cut -d' ' -f1)" "$jars" fetch_into; }
if [[ ${1:-} == fetch ]]; then fetch; exit; fi
[[ $# -ge 2 ]] || { usage >&2; exit 2; }
cmd=$1; mkdir -p "$2"; dir=$(cd "$2" && pwd); shift 2
pidfile=$dir/connect.pid

stat_line() {
  running "$pidfile" || { echo "not running"; return 1; }
  local pid hz; pid=$(cat "$pidfile"); hz=$(getconf CLK_TCK)
  awk -v hz="$hz" '{ sub(/^.*\) /, ""); printf "cpu_s=%.2f ", ($12 + $13) / hz }' "/proc/$pid/stat"
  awk '/^VmHWM/ { h = $2 } /^VmRSS/ { r = $2 } END { printf "rss_mib=%.1f peak_rss_mib=%.1f\n", r/1024, h/1024 }' \
    "/proc/$pid/status"
}

port=${CONNECT_PORT:-58083}

launch() { # MAIN-CLASS FILE...
  : > "$dir/connect.log"
  date +%s.%N > "$dir/started"
  # shellcheck disable=SC2086
  nohup "$(java_bin)" ${CONNECT_JVM:--Xms256M -Xmx2G -XX:+UseG1GC} -Djava.awt.headless=true \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=info -Dorg.slf4j.simpleLogger.showDateTime=true \
    -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS \
    -cp "$jars/*" "org.apache.kafka.connect.cli.$1" "${@:2}" >> "$dir/connect.log" 2>&1 < /dev/null &
  echo $! > "$pidfile"
}

wait_for() { # WHAT COMMAND...: up to 120 s
  local what=$1 i; shift
  for ((i = 0; i < 600; i++)); do
    running "$pidfile" || { tail -20 "$dir/connect.log" >&2; die "Connect died"; }
    "$@" && return 0
    sleep 0.2
  done
  die "$what, see $dir/connect.log"
}

streams() {
  grep -q 'Task threw an uncaught' "$dir/connect.log" && die "the task failed, see $dir/connect.log"
  grep -qE 'Processing messages|Keepalive thread is running|Waiting for keepalive' "$dir/connect.log"
}
answers() { curl -fs "http://127.0.0.1:$port/connectors" > /dev/null; }

start() {
  local bootstrap=$1 conf=${2:-}
  [[ -z "$conf" || -f "$conf" ]] || die "no such file: $conf"
  running "$pidfile" && die "already running: pid $(cat "$pidfile")"
  fetch
  cat > "$dir/worker.properties" <<PROPS
bootstrap.servers=$bootstrap
listeners=http://127.0.0.1:$port
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
plugin.discovery=service_load
${WORKER_PROPS:-}
PROPS
  if [[ -z "$conf" ]]; then
    cat >> "$dir/worker.properties" <<'PROPS'
group.id=connect
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.replication.factor=1
status.storage.partitions=1
PROPS
    launch ConnectDistributed "$dir/worker.properties"
    wait_for "Connect does not answer" answers
    return
  fi
  echo "offset.storage.file.filename=$dir/offsets" >> "$dir/worker.properties"
  python3 - "$conf" > "$dir/connector.properties" <<'PY'
import os, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
sys.stdout.write(re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], m[0]), text))
PY
  launch ConnectStandalone "$dir/worker.properties" "$dir/connector.properties"
  [[ "${WAIT:-0}" == 1 ]] || return 0
  wait_for "the task does not stream" streams
}

case $cmd in
  start) [[ $# -eq 1 || $# -eq 2 ]] || { usage >&2; exit 2; }; start "$@" ;;
  stop) stat_line || true; stop_pid "$pidfile" 30 || echo "killed" >&2 ;;
  kill) if running "$pidfile"; then kill -9 "$(cat "$pidfile")"; fi; rm -f "$pidfile" ;;
  stat) stat_line ;;
  *) usage >&2; exit 2 ;;
esac
