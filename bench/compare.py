"""Runs the comparison against servers that stand already; `run` in this folder starts them and calls this.

Each round runs every candidate once, in turns (A B A B), on the same WAL: each run gets a copy of the slot
that was made before the backlog. Prints a Markdown report and writes every run's raw figures as JSON lines.
"""
import argparse
import json
import os
import time

from drain import drain, recvlogical
from lab import Lab
from latency import broker_writer, database_writer, from_slot, from_topic, latency
from relays import Debezium, Outboxd, Polling
from report import report

READER = "pg_recvlogical"
BROKER = "Kafka producer alone"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bootstrap", required=True)
    p.add_argument("--broker-pid", type=int, required=True)
    p.add_argument("--pgbin", required=True)
    p.add_argument("--python", required=True)
    p.add_argument("--folder", required=True)
    p.add_argument("--outboxd", help="the binary; without it only the others run")
    p.add_argument("--config", help="file with further TOML tables for outboxd")
    p.add_argument("--debezium", action="store_true")
    p.add_argument("--polling", action="store_true")
    p.add_argument("--rows", type=int, default=300_000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--rate", type=float, default=1000)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--no-drain", action="store_true")
    p.add_argument("--no-latency", action="store_true")
    p.add_argument("--report", default="report.md")
    p.add_argument("--raw", default="runs.jsonl")
    a = p.parse_args()

    lab = Lab(a.bootstrap, a.broker_pid)
    extra = open(a.config, encoding="utf-8").read() if a.config else ""
    outboxd = a.outboxd and Outboxd(a.outboxd, a.bootstrap, a.folder, extra)
    polling = a.polling and Polling(a.python, a.bootstrap, a.folder)
    runs = []

    def note(run):
        run["at"], run["load"] = round(time.time(), 1), os.getloadavg()[0]
        runs.append(run)
        with open(a.raw, "a", encoding="utf-8") as f:
            f.write(json.dumps(run) + "\n")
        print(json.dumps(run), flush=True)

    if not a.no_drain:
        took, wal, end = lab.load("bench_base", a.rows)
        print(f"{a.rows} rows loaded in {took:.1f} s, {wal / 1e6:.0f} MB of WAL", flush=True)
        for turn in range(a.rounds):
            for relay in filter(None, [outboxd, READER, a.debezium and Debezium("throughput", a.bootstrap, a.folder)]):
                slot = f"bench_{turn}_{'reader' if relay == READER else relay.label.split()[0].lower()}"
                lab.copy_slot("bench_base", slot)
                run = recvlogical(lab, a.pgbin, slot, a.rows, end) if relay == READER else drain(lab, relay, slot, a.rows)
                lab.drop_slot(slot)
                note({**run, "round": turn})
            if polling:
                polling.fill()
                note({**drain(lab, polling, None, a.rows, limit=1800), "round": turn})
        lab.drop_slot("bench_base")

    if not a.no_latency:
        load = {"rate": a.rate, "seconds": a.seconds}
        lab.new_slot("live_reader")
        note(latency(READER, lambda: database_writer("outbox"), from_slot, (a.pgbin, "live_reader"), **load))
        lab.drop_slot("live_reader")
        lab.remake_topic()
        note(latency(BROKER, lambda: broker_writer(a.bootstrap), from_topic, (a.bootstrap,), connections=1, **load))
        for relay in filter(None, [outboxd, a.debezium and Debezium("tuned", a.bootstrap, a.folder), polling]):
            note(live(lab, relay, polling, load))

    text = report(runs, a.rows, READER, BROKER, "walsender (polling: backend)")
    with open(a.report, "w", encoding="utf-8") as f:
        f.write(text)
    print(text)


def live(lab, relay, polling, load):
    lab.remake_topic()
    slot = None if relay is polling else f"live_{relay.label.split()[0].lower()}"
    if slot:
        lab.new_slot(slot)
    else:
        lab.db.execute("truncate outbox_poll") if lab.db.execute(
            "select to_regclass('outbox_poll')").fetchone()[0] else relay.fill()
    relay.start(slot)
    try:
        for _ in range(600):
            relay.check()
            if not slot or lab.walsender(slot):
                break
            time.sleep(0.1)
        else:
            raise SystemExit(f"{relay.label} does not read from its slot after 60 s")
        return latency(relay.label, lambda: database_writer("outbox" if slot else "outbox_poll"), from_topic,
                       (lab.bootstrap,), relay.pid, **load)
    finally:
        relay.stop()
        if slot:
            lab.drop_slot(slot)


if __name__ == "__main__":
    main()
