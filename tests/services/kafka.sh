#!/usr/bin/env bash
# A single-node Kafka broker (KRaft, loopback only) from Maven Central jars.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib.sh"

usage() {
  cat <<'USAGE'
usage: kafka.sh fetch              fetch the jars only
       kafka.sh start DIR PORT     fetch jars, format DIR, start, wait until ready
       kafka.sh stop DIR           stop the broker of DIR (its data stays)
       kafka.sh kill DIR           end it with SIGKILL
       kafka.sh wipe DIR           stop it and delete DIR's data
       kafka.sh tool CLASS ARGS    run a command-line tool's main class on the same jars,
                                   e.g. org.apache.kafka.tools.TopicCommand
The controller listens on PORT+1. All sockets are bound to 127.0.0.1.
DIR gets server.properties, broker.log, broker.pid and data/.
environment:
  JAVA_HOME     Java 17 or later (else: java on PATH)
  KAFKA_JARS    folder for the jars, shared by all brokers
                (default: ${OUTBOX_TEST_CACHE:-$HOME/.cache/outboxd-tests}/kafka-jars)
  KAFKA_JVM     JVM options (default: a heap of at most 512 MB, chosen for a quick start)
  KAFKA_JVM_MORE  further JVM options of the broker
  KAFKA_PROPS   extra server.properties lines, separated by newlines; only used when DIR is new
USAGE
}
[[ $# -ge 1 ]] || { usage >&2; exit 2; }
cmd=$1; shift
jars=${KAFKA_JARS:-${OUTBOX_TEST_CACHE:-$HOME/.cache/outboxd-tests}/kafka-jars}
jvm=${KAFKA_JVM:--Xms128m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto}

kjava() { "$(java_bin)" -cp "$jars/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=warn "$@"; }

uuid() { # 16 random bytes as Kafka writes them; a leading minus would look like an option
  local id; id=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')
  if [[ $id == -* ]]; then uuid; else echo "$id"; fi
}

# Jars and, in formatted/, an empty formatted log folder: copying that one is quicker than a JVM for each broker.
fetch_into() {
  echo "fetching Kafka" >&2
  mvn -q -B -f "$here/kafka/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$1" >&2 || return 1
  printf '%s\n' process.roles=broker,controller node.id=1 controller.quorum.voters=1@127.0.0.1:9093 \
    listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093 controller.listener.names=CONTROLLER \
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT \
    "log.dirs=$1/formatted" > "$1/format.properties"
  jars=$1 kjava kafka.tools.StorageTool format -t "$(uuid)" -c "$1/format.properties" > "$1/format.log" 2>&1 \
    || { cat "$1/format.log" >&2; return 1; }
}
fetch() { once "$(sha256sum "$here/kafka/pom.xml" | cut -d' ' -f1)" "$jars" fetch_into; }

start() {
  local dir=$1 port=$2 i from
  mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
  local props=$dir/server.properties pidfile=$dir/broker.pid
  running "$pidfile" && { echo "already running: pid $(cat "$pidfile")"; return 0; }
  port_open "$port" && die "port $port is taken"
  fetch
  if [[ ! -f "$dir/data/meta.properties" ]]; then
    cat > "$props" <<PROPS
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# a broker that a test has stopped for a while is still the one that leads
broker.session.timeout.ms=600000
log.cleaner.dedupe.buffer.size=4194304
${KAFKA_PROPS:-}
PROPS
    mkdir -p "$dir/data"
    cp -r "$jars/formatted/." "$dir/data/"
    sed -i "s/^cluster.id=.*/cluster.id=$(uuid)/; s/^directory.id=.*/directory.id=$(uuid)/" "$dir/data/meta.properties"
  fi
  touch "$dir/broker.log"
  from=$(stat -c %s "$dir/broker.log")
  # shellcheck disable=SC2086
  setsid nohup "$(java_bin)" $jvm ${KAFKA_JVM_MORE:-} -Djava.awt.headless=true \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=info -Dorg.slf4j.simpleLogger.showDateTime=true \
    -cp "$jars/*" kafka.Kafka "$props" >> "$dir/broker.log" 2>&1 < /dev/null &
  echo $! > "$pidfile"
  # The broker writes this line when it is unfenced and its sockets accept requests.
  for ((i = 0; i < 1200; i++)); do
    tail -c "+$((from + 1))" "$dir/broker.log" | grep -q 'Kafka Server started' \
      && { echo "Kafka is ready on 127.0.0.1:$port, pid $(cat "$pidfile")"; return 0; }
    running "$pidfile" || { tail -20 "$dir/broker.log" >&2; die "the broker died"; }
    sleep 0.1
  done
  tail -20 "$dir/broker.log" >&2
  die "the broker is not ready after 120 s"
}

case $cmd in
  fetch) fetch ;;
  start) [[ $# -eq 2 ]] || { usage >&2; exit 2; }; start "$1" "$2" ;;
  stop) stop_pid "$1/broker.pid" 30 || echo "killed" >&2 ;;
  kill) running "$1/broker.pid" && kill -9 "$(cat "$1/broker.pid")"; rm -f "$1/broker.pid" ;;
  wipe) stop_pid "$1/broker.pid" 30 || true; rm -rf "$1/data" ;;
  tool) fetch; kjava "$@" ;;
  *) usage >&2; exit 2 ;;
esac
