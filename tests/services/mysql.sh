#!/usr/bin/env bash
# A private MySQL or MariaDB server with its binary log in row format, on loopback.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib.sh"

usage() {
  cat <<'USAGE'
usage: mysql.sh fetch KIND                      fetch and unpack the server, make its template of data
       mysql.sh start KIND DIR PORT [OPTION...] copy the template on first use, start, wait until it answers
       mysql.sh stop DIR                        shutdown in good order (the data stays)
       mysql.sh kill DIR                        end it at once, as in a crash
       mysql.sh wipe DIR                        end it and delete the data
       mysql.sh sql KIND DIR < FILE             statements as root over the socket
       mysql.sh binlog KIND DIR                 the whole binary log, as the server's own tool prints it
KIND is mysql (9.7, of Debian sid), mariadb-10.11 (bookworm) or mariadb-11.8 (trixie). OPTION is passed on to the server.
DIR gets db/, binlog/, server.log, sock, pid. TLS is on: the template's ca.pem has signed a certificate for "localhost".
Users, all with password "pw": tester may do everything; cdc has the rights that the relay needs; cdc_native (MariaDB:
mysql_native_password), cdc_ed (MariaDB: ed25519), cdc_tls (over TLS only), cdc_none (may log in, and nothing else).
environment:
  OUTBOX_TEST_CACHE   folder for what is fetched (default: ~/.cache/outboxd-tests)
USAGE
}
[[ $# -ge 2 ]] || { usage >&2; exit 2; }
cache=${OUTBOX_TEST_CACHE:-$HOME/.cache/outboxd-tests}

kind_of() { # sets root, suite, packages, daemon, client
  kind=$1 root=$cache/$1
  case $1 in
    mysql) suite=sid packages=(mysql-server-core mysql-client-core mysql-client) daemon=usr/sbin/mysqld client=usr/bin/mysql ;;
    mariadb-10.11) suite=bookworm ;;
    mariadb-11.8) suite=trixie ;;
    *) usage >&2; exit 2 ;;
  esac
  if [[ $1 == mariadb-* ]]; then
    packages=(mariadb-server-core mariadb-server mariadb-client) daemon=usr/sbin/mariadbd client=usr/bin/mariadb
  fi
}

# The options that say where the server's own files are.
places() {
  echo "--no-defaults" "--user=$(id -un)" "--basedir=$root/usr" "--plugin-dir=$root/usr/lib/mysql/plugin"
  local share=$root/usr/share/mariadb
  if [[ $kind == mysql ]]; then
    echo "--lc-messages-dir=$root/usr/share/mysql" "--character-sets-dir=$root/usr/share/mysql/charsets"
  else
    # the folder's name differs between the two Debian releases
    [[ -e $share/mysql_system_tables.sql || -e $share/mariadb_system_tables.sql ]] || share=$root/usr/share/mysql
    echo "--lc-messages-dir=$share" "--character-sets-dir=$share/charsets"
  fi
}

# What mariadb-install-db feeds to a bootstrap run; one statement a line.
system_tables() {
  local share file
  for share in "$root/usr/share/mariadb" "$root/usr/share/mysql"; do
    [[ -e $share/mysql_system_tables.sql || -e $share/mariadb_system_tables.sql ]] && break
  done
  printf '%s\n' "CREATE DATABASE IF NOT EXISTS mysql;" "USE mysql;" "SET @auth_root_socket=NULL;"
  for file in mysql_system_tables mariadb_system_tables mysql_performance_tables mariadb_performance_tables \
    mysql_system_tables_data mariadb_system_tables_data fill_help_tables maria_add_gis_sp_bootstrap mysql_sys_schema \
    mariadb_sys_schema; do
    [[ ! -e $share/$file.sql ]] || cat "$share/$file.sql"
  done
}

users() {
  local host monitor="REPLICATION CLIENT, XA_RECOVER_ADMIN" native="IDENTIFIED BY 'pw'"
  if [[ $kind != mysql ]]; then
    monitor="BINLOG MONITOR"
    native="IDENTIFIED VIA mysql_native_password USING PASSWORD('pw')"
  fi
  for host in 127.0.0.1 localhost; do
    echo "CREATE USER tester@'$host' IDENTIFIED BY 'pw'; GRANT ALL ON *.* TO tester@'$host' WITH GRANT OPTION;"
    echo "CREATE USER cdc@'$host' IDENTIFIED BY 'pw'; CREATE USER cdc_native@'$host' $native;"
    echo "CREATE USER cdc_tls@'$host' IDENTIFIED BY 'pw' REQUIRE SSL; CREATE USER cdc_none@'$host' IDENTIFIED BY 'pw';"
    echo "GRANT REPLICATION SLAVE, $monitor, SELECT ON *.* TO cdc@'$host', cdc_native@'$host', cdc_tls@'$host';"
    if [[ $kind != mysql ]]; then
      echo "CREATE USER cdc_ed@'$host' IDENTIFIED VIA ed25519 USING PASSWORD('pw');"
      echo "GRANT REPLICATION SLAVE, $monitor, SELECT ON *.* TO cdc_ed@'$host';"
    fi
  done
}

make_certificate() {
  local tls=$1/tls
  mkdir -p "$tls"
  openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=outboxd test CA" \
    -keyout "$tls/ca.key" -out "$tls/ca.pem" 2> /dev/null
  openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout "$tls/server.key" -out "$tls/server.csr" 2> /dev/null
  openssl x509 -req -in "$tls/server.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 3650 \
    -out "$tls/server.pem" -extfile <(echo "subjectAltName=DNS:localhost") 2> /dev/null
}

template() { # NEW_FOLDER
  local new=$1 dir=$1
  read -ra options <<< "$(places | tr '\n' ' ')"
  if [[ $kind == mysql ]]; then
    "$root/run" "$daemon" "${options[@]}" --datadir="$new/db" --tmpdir="$new" --initialize-insecure > "$new/bootstrap.log" 2>&1
  else
    mkdir -p "$new/db"
    system_tables | "$root/run" "$daemon" "${options[@]}" --datadir="$new/db" --tmpdir="$new" --bootstrap --skip-log-bin \
      --skip-networking --innodb-log-file-size=64M > "$new/bootstrap.log" 2>&1
  fi || { tail -n 20 "$new/bootstrap.log" >&2; die "could not make the data of $kind"; }
  make_certificate "$new"
  launch "$new" 0 --skip-networking --skip-log-bin
  users | sql "$new"
  stop "$new" 60
  # each copy is a server of its own
  rm -rf "$new"/db/auto.cnf "$new"/server.log "$new"/bootstrap.log "$new"/binlog
}

fetch() {
  "$here/unpack-debs.sh" "$suite" "$root" "${packages[@]}"
  once "$kind 4" "$cache/$kind-data" template
}

launch() { # DIR PORT [OPTION...]
  local dir=$1 port=$2 i pid
  shift 2
  mkdir -p "$dir/binlog"
  read -ra options <<< "$(places | tr '\n' ' ')"
  # without syncs: these tests end processes, not machines
  options+=(--datadir="$dir/db" --tmpdir="$dir" --bind-address=127.0.0.1 --port="$port" --socket="$dir/sock" --pid-file="$dir/pid"
    --skip-name-resolve --server-id=1 --max-connections=300 --max-allowed-packet=1G --innodb-flush-log-at-trx-commit=2
    --sync-binlog=0 --log-bin="$dir/binlog/bin" --log-bin-index="$dir/binlog/bin.index" --binlog-row-image=FULL
    --binlog-row-metadata=FULL --binlog-checksum=CRC32 --innodb-buffer-pool-size=64M
    --ssl-ca="$dir/tls/ca.pem" --ssl-cert="$dir/tls/server.pem" --ssl-key="$dir/tls/server.key")
  if [[ $kind == mysql ]]; then
    options+=(--mysqlx=OFF --secure-file-priv= --gtid-mode=ON --enforce-gtid-consistency=ON --innodb-redo-log-capacity=64M --performance-schema=OFF)
  else
    options+=(--gtid-domain-id=0 --binlog-format=ROW --innodb-log-file-size=64M --character-set-server=utf8mb4
      --plugin-load-add=auth_ed25519)
  fi
  setsid nohup "$root/run" "$daemon" "${options[@]}" "$@" >> "$dir/server.log" 2>&1 < /dev/null &
  pid=$!
  for ((i = 0; i < 1200; i++)); do
    if echo "SELECT 1;" | sql "$dir" > /dev/null 2>&1; then return; fi
    kill -0 "$pid" 2> /dev/null || { tail -n 20 "$dir/server.log" >&2; die "$kind ended before it was ready"; }
    sleep 0.1
  done
  die "$kind did not answer within 120 s"
}

sql() { # DIR
  local dir=$1
  shift
  "$root/run" "$client" --no-defaults --socket="$dir/sock" --user=root "$@"
}

binlog() { # DIR
  local tool=usr/bin/mysqlbinlog
  [[ $kind == mysql ]] || tool=usr/bin/mariadb-binlog
  "$root/run" "$tool" --no-defaults --base64-output=DECODE-ROWS -vv "$1"/binlog/bin.[0-9][0-9][0-9][0-9][0-9][0-9]
}

start() { # PORT [OPTION...]
  fetch
  mkdir -p "$dir"
  if [[ ! -d $dir/db ]]; then cp -a "$cache/$kind-data/." "$dir/"; fi
  running "$dir/pid" && return
  launch "$dir" "$@"
  echo "$kind is ready on 127.0.0.1:$1"
}

stop() { stop_pid "$1/pid" "$2"; }

# As a crash: the next start may not find a trace of this process.
end() { # DIR
  local pid i
  [[ -s $1/pid ]] || return 0
  pid=$(head -n 1 "$1/pid")
  kill -9 "$pid" 2> /dev/null || true
  for ((i = 0; i < 200; i++)); do
    running "$1/pid" || break
    sleep 0.05
  done
  rm -f "$1/pid" "$1/sock" "$1/sock.lock"
}

cmd=$1; shift
case $cmd in
  fetch) kind_of "$1"; fetch ;;
  start) [[ $# -ge 3 ]] || { usage >&2; exit 2; }; kind_of "$1"; mkdir -p "$2"; dir=$(cd "$2" && pwd); shift 2; start "$@" ;;
  sql) kind_of "$1"; shift; sql "$@" ;;
  binlog) kind_of "$1"; binlog "$2" ;;
  stop) stop "$1" 60 ;;
  kill) end "$1" ;;
  wipe) end "$1"; rm -rf "$1" ;;
  *) usage >&2; exit 2 ;;
esac
