"""Drains the backlog: once through a relay into the broker, once with pg_recvlogical into /dev/null."""
import json
import os
import subprocess
import time

from lab import PUBLICATION
from proc import cpu_seconds, memory_mib


def drain(lab, relay, slot, rows, limit=300):
    """Starts `relay` on `slot`, waits until the topic holds `rows` records, stops it, reads the topic back.

    The rate is taken from the first to the last record's time (the broker's clock); what the start costs
    stands beside it. CPU is the whole process's, from its launch on; the server's is that of the one process that
    serves the relay, its walsender or, for polling, its backend.
    """
    lab.remake_topic()
    broker_cpu = cpu_seconds(lab.broker_pid)
    started = time.time()
    relay.start(slot)
    first_cpu, sender, count = None, None, 0
    try:
        while count < rows:
            time.sleep(0.05)
            relay.check()
            if time.time() - started > limit:
                raise SystemExit(f"{relay.label}: {count} of {rows} records after {limit} s")
            count = lab.record_count()
            if count and first_cpu is None:
                first_cpu, sender = cpu_seconds(relay.pid), lab.serving(slot)
        cpu, memory = cpu_seconds(relay.pid), memory_mib(relay.pid)
        out = {"what": "drain", "relay": relay.label, "rows": rows, "cpu_s": round(cpu, 2),
               "cpu_s_before_first": round(first_cpu, 2), "cpu_s_per_million": round(cpu * 1e6 / count, 2),
               "peak_rss_mib": round(memory[1], 1),
               "server_cpu_s": sender and round(cpu_seconds(sender) - lab.served_before, 2),
               "broker_cpu_s": round(cpu_seconds(lab.broker_pid) - broker_cpu, 2)}
        time.sleep(0.5)  # whatever comes beyond the backlog would show as more records than rows
    finally:
        relay.stop()
    out.update(read_back(lab, rows, started))
    return out


def read_back(lab, rows, started):
    """What stands in the topic: times, and whether everything came, once, in order."""
    count = lab.record_count()
    first = last = None
    seen, ids, out_of_order, newest, size = bytearray(rows + 1), set(), 0, {}, 0
    for record in lab.records(count):
        at = record.timestamp()[1] / 1000
        first, last = min(first or at, at), max(last or at, at)
        body = json.loads(record.value())
        size += len(record.value())
        ids.add(next(v for k, v in record.headers() if k == "id"))
        seq = body["seq"]
        if not seen[seq]:
            seen[seq] = 1
            if body["agg_seq"] != newest.get(record.key(), 0) + 1:
                out_of_order += 1
            newest[record.key()] = body["agg_seq"]
    return {"records": count, "startup_s": round(first - started, 3), "drain_s": round(last - first, 3),
            "rows_per_s": round(count / max(last - first, 0.001)),
            "rows_per_s_with_startup": round(count / (last - started)), "missing": rows - sum(seen),
            "repeats": count - len(ids), "out_of_order": out_of_order, "value_bytes": round(size / count)}


def recvlogical(lab, pgbin, slot, rows, end):
    """The yardstick: the server's own client, pgoutput, nothing done with what comes."""
    before = os.times()
    started = time.monotonic()
    child = subprocess.Popen([f"{pgbin}/pg_recvlogical", "-d", os.environ["PGDATABASE"], "--slot", slot, "--start",
                              "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}",
                              f"--endpos={end}", "-f", "/dev/null"])
    sender, sender_cpu, memory = None, None, None
    while child.poll() is None:
        sender = sender or lab.walsender(slot)
        if sender:
            sender_cpu = cpu_seconds(sender) or sender_cpu
        memory = memory_mib(child.pid) or memory
        time.sleep(0.02)
    took = time.monotonic() - started
    if child.returncode:
        raise SystemExit(f"pg_recvlogical ended with {child.returncode}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"what": "drain", "relay": "pg_recvlogical", "rows": rows, "drain_s": round(took, 3),
            "rows_per_s": round(rows / took), "rows_per_s_with_startup": round(rows / took), "cpu_s": round(cpu, 2),
            "cpu_s_per_million": round(cpu * 1e6 / rows, 2), "server_cpu_s": sender_cpu,
            "peak_rss_mib": memory and round(memory[1], 1)}
