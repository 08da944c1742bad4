"""Runs the comparison against servers that stand already; `run` in this folder starts them and calls this.

Each round runs every candidate once, in turns (A B A B), on the same WAL: each run gets a copy of the slot
that was made before the backlog. Prints a Markdown report and writes every run's raw figures as JSON lines.
"""
import argparse
import json
import os
import statistics
import time

from drain import drain, recvlogical
from lab import Lab
from latency import broker_writer, database_writer, from_slot, from_topic, latency
from relays import Debezium, Outboxd, Polling

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

    text = report(runs, a.rows)
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


def report(runs, rows):
    """The Markdown tables: medians over the rounds, and each rate as a ratio to pg_recvlogical in its own round."""
    out = []
    drains = [r for r in runs if r["what"] == "drain"]
    reader = {r["round"]: r["rows_per_s"] for r in drains if r["relay"] == READER}
    if drains:
        out += [f"### Draining {rows:,} rows", "",
                "| relay | rows/s | ratio to pg_recvlogical | first record after s | CPU s per million rows | walsender (polling: backend) CPU s"
                " per million rows | peak RSS MiB | missing / repeats / out of order |",
                "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for relay in dict.fromkeys(r["relay"] for r in drains):
        mine = [r for r in drains if r["relay"] == relay]
        ratios = sorted(r["rows_per_s"] / reader[r["round"]] for r in mine)

        def mid(key, scale=1.0, mine=mine):
            known = [r[key] * scale for r in mine if r.get(key) is not None]
            return statistics.median(known) if known else None

        first, sender = mid("startup_s"), mid("server_cpu_s", 1e6 / rows)
        checks = " / ".join(str(sum(r[k] for r in mine)) for k in ("missing", "repeats", "out_of_order")
                            ) if "missing" in mine[0] else ""
        out.append(f"| {relay} | {mid('rows_per_s'):,.0f} | {statistics.median(ratios):.2f}"
                   f" ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {'' if first is None else f'{first:.2f}'} |"
                   f" {mid('cpu_s_per_million'):.1f} | {'' if sender is None else f'{sender:.1f}'} |"
                   f" {mid('peak_rss_mib'):.0f} | {checks} |")
    live_runs = [r for r in runs if r["what"] == "latency"]
    if live_runs:
        floors = [r["sent_to_arrival_ms"] for r in live_runs if r["relay"] in (READER, BROKER)]
        floor = {q: sum(f[q] for f in floors) for q in ("p50", "p99")} if len(floors) == 2 else None
        out += ["", f"### Latency at {live_runs[0]['rate']:,.0f} events/s", "",
                "| relay | commit to arrival p50 ms | p99 ms | max ms | insert to arrival p50 ms | p99 ms |"
                " their ratio to pg_recvlogical + producer alone | commit itself p50, p99 ms | CPU s | peak RSS MiB |"
                " missing / repeats |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in live_runs:
        ms, sent, commit = r["committed_to_arrival_ms"], r["sent_to_arrival_ms"], r["commit_ms"]
        ratio = "; ".join(f"{sent[q] / floor[q]:.2f}" for q in floor) if floor else ""
        out.append(f"| {r['relay']} | {ms['p50']} | {ms['p99']} | {ms['max']} | {sent['p50']} | {sent['p99']} | {ratio} |"
                   f" {commit['p50']}; {commit['p99']} | {r.get('cpu_s', '')} | {r.get('peak_rss_mib', '')} |"
                   f" {r['missing']} / {r['repeats']} |")
    loads = [r["load"] for r in runs]
    out += ["", f"{os.cpu_count()} CPUs; load average {min(loads):.1f} to {max(loads):.1f} during the runs."]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
