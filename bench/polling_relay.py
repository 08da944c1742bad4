"""A polling outbox relay, the plainest that keeps its promises: for comparison.

usage: polling_relay.py BOOTSTRAP [--batch 500] [--interval 0.1] [--table outbox_poll]
       polling_relay.py --make-table
One loop, one connection. A transaction takes the oldest pending rows (FOR UPDATE SKIP LOCKED), hands
them to an idempotent producer, waits until every one is acknowledged, marks them sent and commits.
A crash in between sends the batch again (same id header). An empty or short batch waits --interval.
The order within a key holds while a single relay runs, as far as occurred_at tells the order.
"""
import argparse
import signal
import time

import psycopg
from confluent_kafka import Producer

TABLE = """create table if not exists {t} (id uuid primary key, aggregatetype text not null,
  aggregateid text not null, type text not null, payload jsonb,
  status text not null default 'pending', occurred_at timestamptz not null default clock_timestamp());
create index if not exists {t}_pending on {t} (occurred_at) where status = 'pending'"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bootstrap", nargs="?")
    p.add_argument("--make-table", action="store_true")
    p.add_argument("--batch", type=int, default=500)
    p.add_argument("--interval", type=float, default=0.1)
    p.add_argument("--table", default="outbox_poll")
    a = p.parse_args()
    if a.make_table:
        with psycopg.connect("", autocommit=True) as db:
            db.execute(TABLE.format(t=a.table))
        return
    take = f"""select id::text, aggregatetype, aggregateid, payload::text from {a.table}
        where status = 'pending' order by occurred_at limit {a.batch} for update skip locked"""
    mark = f"update {a.table} set status = 'sent' where id = any(%s::uuid[])"
    producer = Producer({"bootstrap.servers": a.bootstrap, "enable.idempotence": True, "linger.ms": 5,
                         "batch.size": 524288, "partitioner": "murmur2_random"})
    stop, failed = [], []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))

    def delivered(err, _):
        if err:
            failed.append(err)

    db = psycopg.connect("", application_name="polling_relay")
    db.prepare_threshold = 0
    while not stop:
        with db.transaction():
            rows = db.execute(take).fetchall()
            if rows:
                for id_, kind, key, payload in rows:
                    producer.produce("outbox.event." + kind, payload, key, headers=[("id", id_)], on_delivery=delivered)
                producer.flush()
                if failed:
                    raise SystemExit(f"not delivered: {failed[0]}")
                db.execute(mark, [[r[0] for r in rows]])
        if len(rows) < a.batch:
            time.sleep(a.interval)


main()
