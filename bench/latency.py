"""From commit to arrival at a steady rate, one row a transaction.

Rows are inserted by autocommit statements from a few connections on a fixed schedule. The client's clock
is read just before a statement is sent and just after its commit was acknowledged; a process of its own
notes when each row arrives. Everything is on one machine, so there is one clock. What is reported is
the time from the acknowledgement to the arrival: the relay's own share.
"""
import json
import multiprocessing
import os
import re
import select
import subprocess
import threading
import time
import uuid

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from lab import PUBLICATION
from proc import cpu_seconds, memory_mib
from topic import PARTITIONS, TOPIC


def from_topic(bootstrap, until, ready, done, arrivals):
    """Notes in `arrivals` ({i: time}) the records that come to the topic from now on; returns how many came again."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "enable.auto.commit": False,
                         "fetch.wait.max.ms": 100, "fetch.min.bytes": 1})
    ends = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    consumer.assign([TopicPartition(TOPIC, tp.partition, consumer.get_watermark_offsets(tp, timeout=10)[1])
                     for tp in ends])
    consumer.poll(1)
    ready.set()
    twice = 0
    while not done(arrivals) and time.monotonic() < until:
        record = consumer.poll(0.2)
        if record is None or record.error():
            continue
        now, i = time.time(), json.loads(record.value())["i"]
        twice += i in arrivals
        arrivals.setdefault(i, now)
    consumer.close()
    return twice


def from_slot(pgbin, slot, until, ready, done, arrivals):
    """The same for what pg_recvlogical reads from `slot`: the floor under every reader of the log."""
    child = subprocess.Popen([f"{pgbin}/pg_recvlogical", "-d", os.environ["PGDATABASE"], "--slot", slot, "--start",
                              "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}",
                              "--fsync-interval=0", "-f", "-"], stdout=subprocess.PIPE)
    pattern = re.compile(rb'"i": (\d+)')
    time.sleep(1)
    ready.set()
    rest = b""
    while not done(arrivals) and time.monotonic() < until:
        if not select.select([child.stdout], [], [], 0.2)[0]:
            continue
        chunk = os.read(child.stdout.fileno(), 1 << 16)
        if not chunk:
            break
        now, text = time.time(), rest + chunk
        for match in pattern.finditer(text):
            if match.end() < len(text):  # else the number may go on in the next chunk
                arrivals.setdefault(int(match[1]), now)
        rest = text[-32:]
    child.terminate()
    child.wait()
    return 0


# Not forked: the parent holds Kafka clients, whose threads would be missing in the child.
spawn = multiprocessing.get_context("spawn")


def listen(reader, args, want, limit, ready, out):
    arrivals = {}
    twice = reader(*args, time.monotonic() + limit, ready, lambda got: len(got) >= want, arrivals)
    out.put((arrivals, twice))


def percentiles(values):
    v = sorted(values)
    if not v:
        return None
    pick = lambda q: round(v[min(len(v) - 1, int(len(v) * q))] * 1000, 2)
    return {"p50": pick(0.5), "p95": pick(0.95), "p99": pick(0.99), "p999": pick(0.999), "max": round(v[-1] * 1000, 2)}


def database_writer(table):
    """Returns a function that commits one row, for one thread."""
    db = psycopg.connect("", autocommit=True)
    insert = f"""insert into {table}(id, aggregatetype, aggregateid, type, payload)
        values (%s, 'order', %s, 'E', %s)"""
    return lambda key, body: db.execute(insert, [uuid.uuid4(), key, body], prepare=True)


def broker_writer(bootstrap):
    """The same for a record that goes straight to the topic: the floor under every writer to Kafka."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
                         "log_level": 3})

    def write(key, body):
        producer.produce(TOPIC, body, key)
        producer.poll(0)

    return write


def latency(label, writer, reader, args, pid=None, rate=1000, seconds=60, warmup=10, connections=8):
    """Runs the load and returns the figures; `pid` is the relay's, for its CPU and memory."""
    total, skip = int(rate * (seconds + warmup)), int(rate * warmup)
    sent, committed = [0.0] * total, [0.0] * total
    ready, out = spawn.Event(), spawn.Queue()
    listener = spawn.Process(target=listen, args=(reader, args, total, seconds + warmup + 30, ready, out))
    listener.start()
    if not ready.wait(30):
        raise SystemExit(f"{label}: the listener is not ready")
    writers = [writer() for _ in range(connections)]
    base, cpu = time.time() + 0.5, pid and cpu_seconds(pid)

    def work(first):
        for i in range(first, total, connections):
            time.sleep(max(0, base + i / rate - time.time()))
            key, body = f"agg-{i % 1000:04d}", '{"i": %d, "pad": "%s"}' % (i, "x" * 270)
            sent[i] = time.time()
            writers[first](key, body)
            committed[i] = time.time()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrote = time.time() - base
    arrivals, twice = out.get()
    listener.join()
    counted = [i for i in arrivals if i >= skip]
    result = {"what": "latency", "relay": label, "rate": rate, "rate_reached": round(total / wrote, 1),
              "counted": len(counted), "missing": total - len(arrivals), "repeats": twice,
              "committed_to_arrival_ms": percentiles([arrivals[i] - committed[i] for i in counted]),
              "sent_to_arrival_ms": percentiles([arrivals[i] - sent[i] for i in counted]),
              "commit_ms": percentiles([committed[i] - sent[i] for i in counted])}
    if pid:
        result.update(cpu_s=round(cpu_seconds(pid) - cpu, 2), peak_rss_mib=round(memory_mib(pid)[1], 1))
    return result
