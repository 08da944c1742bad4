#!/usr/bin/env bash
# A private PostgreSQL cluster with logical decoding, on loopback.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib.sh"

usage() {
  cat <<'USAGE'
usage: postgres.sh start DIR PORT     initdb on first use, start, wait until ready
       postgres.sh stop DIR           fast shutdown (the data stays)
       postgres.sh kill DIR           immediate shutdown, as after a crash
       postgres.sh wipe DIR           stop and delete the data
Superuser postgres with trust authentication. Roles that are members of a role named "scram" must give
their password (SCRAM). TLS is on: DIR/tls/ca.pem has signed the certificate for the name "localhost".
Run as root it drops to PG_OSUSER, as anyone else it runs as that user.
DIR gets data/, tls/, server.log; it must be within reach of that user.
environment:
  PGBIN        folder of initdb and pg_ctl (default: newest /usr/lib/postgresql/*/bin)
  PG_OSUSER    system user to run as when root (default: postgres if there is one, else nobody)
  PG_CONF      extra postgresql.conf lines, separated by newlines; only used when DIR is new
USAGE
}
[[ $# -ge 2 ]] || { usage >&2; exit 2; }
cmd=$1; mkdir -p "$2"; dir=$(cd "$2" && pwd); shift 2
bin=${PGBIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)}
[[ -x "$bin/pg_ctl" ]] || die "no pg_ctl: install postgresql or set PGBIN"
data=$dir/data
if id postgres > /dev/null 2>&1; then osuser=${PG_OSUSER:-postgres}; else osuser=${PG_OSUSER:-nobody}; fi
as_pg() { if [[ $EUID -eq 0 ]]; then runuser -u "$osuser" -- env -C / "$@"; else "$@"; fi; }

# A CA of its own and a certificate for "localhost" (not for the address).
make_certificate() {
  local tls=$dir/tls
  mkdir -p "$tls"
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=outboxd test CA" \
    -keyout "$tls/ca.key" -out "$tls/ca.pem" 2> /dev/null
  openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout "$tls/server.key" -out "$tls/server.csr" 2> /dev/null
  openssl x509 -req -in "$tls/server.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 30 \
    -out "$tls/server.pem" -extfile <(echo "subjectAltName=DNS:localhost") 2> /dev/null
  chmod 600 "$tls/server.key"
  if [[ $EUID -eq 0 ]]; then chown "$osuser" "$tls/server.key"; fi
}

start() {
  local port=$1
  if [[ $EUID -eq 0 ]]; then
    chown "$osuser" "$dir"
    as_pg test -w "$dir" || die "user $osuser cannot reach $dir"
  fi
  if [[ ! -f "$data/postgresql.conf" ]]; then
    make_certificate
    as_pg "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C --no-sync --no-instructions \
      > "$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log" >&2; die "initdb failed"; }
    # fsync off: these tests end processes, not machines
    cat >> "$data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_connections = 200
max_wal_senders = 60
max_replication_slots = 80
max_prepared_transactions = 20
fsync = off
synchronous_commit = on
shared_buffers = 128MB
max_wal_size = 1GB
password_encryption = 'scram-sha-256'
log_replication_commands = on
ssl = on
ssl_cert_file = '$dir/tls/server.pem'
ssl_key_file = '$dir/tls/server.key'
${PG_CONF:-}
CONF
    sed -i '1i host all +scram 127.0.0.1/32 scram-sha-256\nhost replication +scram 127.0.0.1/32 scram-sha-256' "$data/pg_hba.conf"
  fi
  if ! as_pg "$bin/pg_ctl" -D "$data" status > /dev/null 2>&1; then
    as_pg setsid "$bin/pg_ctl" -D "$data" -w -t 120 -l "$dir/server.log" -o "-p $port" start > /dev/null 2>&1 \
      || { tail -20 "$dir/server.log" >&2; die "the server did not start"; }
  fi
  echo "PostgreSQL is ready on 127.0.0.1:$port"
}
stop() { as_pg "$bin/pg_ctl" -D "$data" -w -t "${PG_STOP_TIMEOUT:-120}" -m "$1" stop > /dev/null 2>&1; }

case $cmd in
  start) [[ $# -eq 1 ]] || { usage >&2; exit 2; }; start "$1" ;;
  stop) stop fast ;;
  kill) stop immediate ;;
  wipe) stop immediate || true; rm -rf "$data" ;;
  *) usage >&2; exit 2 ;;
esac
