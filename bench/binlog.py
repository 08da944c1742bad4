"""Runs the comparison on MySQL or MariaDB against servers that stand already; `binlog` in this folder starts them.

Each round runs every candidate once, in turns, on the same binary log: every relay has stored a position of its own
before the backlog was committed, and goes on from a copy of it. Prints a Markdown report and writes every run's raw
figures as JSON lines.
"""
import argparse
import json
import os
import resource
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pymysql

from drain import drain
from proc import cpu_seconds, memory_mib
from relays import HERE, Debezium, Process
from report import report
from topic import Topic

READER = "mysqlbinlog"

CONFIG = """name = "{name}"
[source.{kind}]
url = "mysql://cdc@127.0.0.1:{port}/bench?sslmode=disable"
password-file = "{password}"
start = "now"
[outbox]
tables = ["bench.outbox"]
[sink.{sink}]
{sink_options}
[http]
listen = ""
"""


class Lab(Topic):
    """Connections to the database and to the broker."""

    def __init__(self, a):
        super().__init__(a.bootstrap, a.broker_pid)
        self.kind, self.server = a.kind, Path(a.server)
        self.db = pymysql.connect(unix_socket=str(self.server / "sock"), user="root", autocommit=True)
        self.pid = int((self.server / "pid").read_text())
        self.served_before = 0
        self.run("create database bench", "use bench", (HERE / "outbox.mysql.sql").read_text())

    def run(self, *statements):
        with self.db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def remake_topic(self):
        super().remake_topic()
        self.served_before = cpu_seconds(self.pid)

    def serving(self, _):
        """The whole server: a replica is served by a thread of it."""
        return self.pid

    def end(self):
        """The file of the log that is written, and its size."""
        rows = self.run("show binary logs")
        return rows[-1][0], int(rows[-1][1])

    def gtids(self):
        """All transactions of the log, as a stored position has them."""
        variable = "gtid_executed" if self.kind == "mysql" else "gtid_binlog_pos"
        return self.run(f"select @@global.{variable}")[0][0].replace("\n", "")

    def load(self, rows, per_tx=100, keys=1000, payload_bytes=300):
        """Commits the backlog into files of the log of its own; returns (seconds, first file, bytes)."""
        self.run("flush binary logs")
        first, _ = self.end()
        started = time.monotonic()
        insert = "insert into outbox (id, aggregatetype, aggregateid, type, payload) values (%s, %s, %s, %s, %s)"
        with self.db.cursor() as cursor:
            for begin in range(0, rows, per_tx):
                cursor.executemany(insert, [self.row(s, keys, payload_bytes) for s in range(begin, begin + per_tx)])
        took = time.monotonic() - started
        self.run("flush binary logs")
        sizes = {row[0]: int(row[1]) for row in self.run("show binary logs")}
        return took, first, sum(size for file, size in sizes.items() if first <= file < self.end()[0])

    @staticmethod
    def row(s, keys, payload_bytes):
        head = f'{{"seq": {s + 1}, "agg_seq": {s // keys + 1}, "pad": "'
        payload = head + "x" * max(0, payload_bytes - len(head) - 2) + '"}'
        return str(uuid.uuid4()), "order", f"agg-{s % keys:04}", "OrderCreated", payload


class Outboxd(Process):
    """Every round gets an instance of its own name, so that no position record of an earlier run stands in its way."""
    label = "outboxd"

    def __init__(self, a, sink="kafka"):
        self.a, self.sink, self.folder = a, sink, Path(a.folder)
        if sink == "stdout":
            self.label = "outboxd to /dev/null"
        self.password = self.folder / "password"
        self.password.write_text("pw")

    def prepare(self, slot):
        """Stores the place where the log ends now."""
        if self.sink == "kafka":
            options = f'bootstrap-servers = "{self.a.bootstrap}"\npositions-topic = "bench.positions"'
        else:
            options = f'positions-file = "{self.folder / slot}.json"'
        file = self.folder / f"{slot}.toml"
        file.write_text(CONFIG.format(name=slot, kind=self.a.kind, port=self.a.port, password=self.password,
                                      sink=self.sink, sink_options=options))
        subprocess.run([self.a.outboxd, "resume", "--from", "now", "--yes", "--config", str(file)], check=True,
                       stdout=subprocess.DEVNULL)

    def start(self, slot):
        self.launch([self.a.outboxd, "run", "--config", str(self.folder / f"{slot}.toml")],
                    self.folder / "outboxd.log", mute=self.sink == "stdout")


class DebeziumMysql(Debezium):
    """Its offsets and its schema history are stored once, and copied for each round."""

    def __init__(self, a):
        super().__init__("throughput", a.bootstrap, a.folder)
        self.base = Path(a.folder) / "connect-base"
        self.environment = {"MYSQL_PORT": str(a.port), "HISTORY": str(self.folder / "history")}

    def prepare(self, lab):
        self.folder.mkdir()
        text = (HERE / "connect/mysql-outbox.properties").read_text() + (HERE / "connect/throughput.properties").read_text()
        (self.folder / "outbox.properties").write_text(text)
        self.launch_worker(WAIT="1")
        lab.run("insert into outbox values ('', 'order', 'first', 'First', '{}')")
        while lab.record_count() == 0:
            time.sleep(0.1)
            self.check()
        self.stop()
        self.base.mkdir()
        for name in ("offsets", "history"):
            shutil.copy(self.folder / name, self.base / name)

    def start(self, slot):
        for name in ("offsets", "history"):
            shutil.copy(self.base / name, self.folder / name)
        self.launch_worker()

    def launch_worker(self, **environment):
        self.run("start", self.bootstrap, str(self.folder / "outbox.properties"), **self.environment, **environment)
        self.pid = int((self.folder / "connect.pid").read_text())


def read_log(a, first):
    """The yardstick: the server's own client fetches the files, nothing done with what comes."""
    folder = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(a.folder)
    folder = folder / f"outboxd-bench-{os.getpid()}"
    folder.mkdir()
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        subprocess.run([*a.reader.split(), "--no-defaults", "--host=127.0.0.1", f"--port={a.port}", "--user=tester",
                        "--password=pw", "--read-from-remote-server", "--raw", "--to-last-log",
                        f"--result-file={folder}/", first], check=True, stderr=subprocess.DEVNULL)
    finally:
        shutil.rmtree(folder)
    took, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"what": "drain", "relay": READER, "rows": a.rows, "drain_s": round(took, 3), "rows_per_s": round(a.rows / took),
            "cpu_s": round(cpu, 2), "cpu_s_per_million": round(cpu * 1e6 / a.rows, 2)}


def decode(lab, relay, slot, rows, limit=300):
    """Runs `relay`, which writes lines into /dev/null, until its position stands at the end of the log."""
    end = lab.gtids()
    started, before = time.monotonic(), cpu_seconds(lab.pid)
    position = relay.folder / f"{slot}.json"
    relay.start(slot)
    try:
        while end not in position.read_text():
            time.sleep(0.02)
            relay.check()
            if time.monotonic() - started > limit:
                raise SystemExit(f"{relay.label}: not done after {limit} s")
        took = time.monotonic() - started
        cpu, memory = cpu_seconds(relay.pid), memory_mib(relay.pid)
        server = cpu_seconds(lab.pid) - before
    finally:
        relay.stop()
    return {"what": "drain", "relay": relay.label, "rows": rows, "drain_s": round(took, 3), "rows_per_s": round(rows / took),
            "cpu_s": cpu, "cpu_s_per_million": round(cpu * 1e6 / rows, 2), "peak_rss_mib": round(memory[1], 1),
            "server_cpu_s": round(server, 2)}


def main():
    p = argparse.ArgumentParser()
    for name in ("bootstrap", "kind", "server", "reader", "outboxd", "folder", "report", "raw"):
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--broker-pid", type=int, required=True)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--debezium", action="store_true")
    p.add_argument("--rows", type=int, default=300_000)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()

    lab = Lab(a)
    outboxd, to_null = Outboxd(a), Outboxd(a, "stdout")
    debezium = a.debezium and DebeziumMysql(a)
    if debezium:
        lab.remake_topic()
        debezium.prepare(lab)
    for turn in range(a.rounds):
        outboxd.prepare(f"bench_{turn}")
        to_null.prepare(f"null_{turn}")
    took, first, size = lab.load(a.rows)
    print(f"{a.rows} rows loaded in {took:.1f} s, {size / 1e6:.0f} MB of binary log", flush=True)

    runs = []

    def note(run, turn):
        runs.append({**run, "kind": a.kind, "round": turn, "at": round(time.time(), 1), "load": os.getloadavg()[0]})
        with open(a.raw, "a", encoding="utf-8") as f:
            f.write(json.dumps(runs[-1]) + "\n")
        print(json.dumps(runs[-1]), flush=True)

    for turn in range(a.rounds):
        note(drain(lab, outboxd, f"bench_{turn}", a.rows), turn)
        note(read_log(a, first), turn)
        note(decode(lab, to_null, f"null_{turn}", a.rows), turn)
        if debezium:
            note(drain(lab, debezium, None, a.rows), turn)
    text = report(runs, a.rows, READER, None, "database server")
    with open(a.report, "w", encoding="utf-8") as f:
        f.write(text)
    print(text)


if __name__ == "__main__":
    main()
