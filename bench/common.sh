# What the benchmarks share. Sourced, not run: wants $here, and sets $dir, $python, OUTBOXD and what the scripts read.

export SERVICES=${SERVICES:-$here/../tests/services}
dir=${BENCH_DIR:-/var/tmp/outboxd-bench}
mkdir -p "$dir"
export PYTHONDONTWRITEBYTECODE=1 KAFKA_JARS=$dir/jars-kafka CONNECT_JARS=$dir/jars-connect

build_outboxd() {
  [[ -z ${OUTBOXD:-} ]] || return 0
  cargo build --release --manifest-path "$here/../Cargo.toml"
  OUTBOXD=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/../Cargo.toml" \
    | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/release/outboxd
}

packages=('psycopg[binary]==3.*' 'PyMySQL==1.*' 'confluent-kafka==2.*')
python=$dir/venv/bin/python
make_venv() {
  [[ "$(cat "$dir/venv/.complete" 2> /dev/null)" != "${packages[*]}" ]] || return 0
  python3 -m venv --clear "$dir/venv"
  "$dir/venv/bin/pip" install -q "${packages[@]}"
  echo "${packages[*]}" > "$dir/venv/.complete"
}

start_kafka() { # PORT
  KAFKA_JVM="-Xms512m -Xmx1g -XX:+UseG1GC" KAFKA_PROPS="auto.create.topics.enable=false" \
    "$SERVICES/kafka.sh" start "$dir/kafka" "$1"
}
