"""The two servers of a run: slots, topics, the backlog."""
import time

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "outbox.event.order"
PUBLICATION = "pub_outbox"
PARTITIONS = 4

# One server-side loop: no client takes part, so that loading is quick. Commit order is the order of "seq".
LOAD = """do $$
begin
  for t in 0 .. {transactions} - 1 loop
    insert into outbox
      select gen_random_uuid(), 'order', 'agg-' || lpad((s % {keys})::text, 4, '0'), 'OrderCreated',
             (h || repeat('x', greatest(0, {payload_bytes} - length(h) - 2)) || '"}}')::jsonb
      from (select s, format('{{"seq": %s, "agg_seq": %s, "pad": "', s + 1, s / {keys} + 1) as h
            from generate_series(t * {per_tx}, (t + 1) * {per_tx} - 1) as s) as rows
      order by s;
    commit;
  end loop;
end $$"""


class Lab:
    """Connections to the database (PGHOST, PGPORT, …) and to the broker."""

    def __init__(self, bootstrap, broker_pid):
        self.bootstrap, self.broker_pid = bootstrap, broker_pid
        self.db = psycopg.connect("", autocommit=True)
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.consumer = None

    def load(self, slot, rows, per_tx=100, keys=1000, payload_bytes=300):
        """Makes `slot`, commits the backlog behind it, returns (seconds, WAL bytes, end LSN)."""
        self.db.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        begin = self.db.execute("select pg_current_wal_lsn()").fetchone()[0]
        started = time.monotonic()
        self.db.execute("set synchronous_commit = off")
        self.db.execute(LOAD.format(transactions=rows // per_tx, per_tx=per_tx, keys=keys, payload_bytes=payload_bytes))
        self.db.execute("reset synchronous_commit")
        took = time.monotonic() - started
        self.db.execute("checkpoint")
        end = self.db.execute("select pg_current_wal_flush_lsn()").fetchone()[0]
        wal = self.db.execute("select %s::pg_lsn - %s::pg_lsn", [end, begin]).fetchone()[0]
        return took, int(wal), end

    def copy_slot(self, base, slot):
        self.drop_slot(slot)
        self.db.execute("select pg_copy_logical_replication_slot(%s, %s)", [base, slot])

    def new_slot(self, slot):
        self.drop_slot(slot)
        self.db.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])

    def drop_slot(self, slot):
        """Waits until nobody reads from `slot`, then drops it, if it is there."""
        until = time.monotonic() + 30
        while True:
            row = self.db.execute("select active from pg_replication_slots where slot_name = %s", [slot]).fetchone()
            if not row:
                return
            if not row[0]:
                self.db.execute("select pg_drop_replication_slot(%s)", [slot])
                return
            if time.monotonic() > until:
                raise SystemExit(f"slot {slot} is still in use")
            time.sleep(0.1)

    def walsender(self, slot):
        row = self.db.execute("select active_pid from pg_replication_slots where slot_name = %s", [slot]).fetchone()
        return row and row[0]

    def backend(self, application):
        row = self.db.execute("select pid from pg_stat_activity where application_name = %s", [application]).fetchone()
        return row and row[0]

    def remake_topic(self):
        """An empty topic whose record times are the broker's clock at the append."""
        if TOPIC in self.admin.list_topics(timeout=10).topics:
            self.admin.delete_topics([TOPIC])[TOPIC].result(30)
            while TOPIC in self.admin.list_topics(timeout=10).topics:
                time.sleep(0.2)
            time.sleep(1)
        new = NewTopic(TOPIC, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})
        self.admin.create_topics([new])[TOPIC].result(30)
        # A consumer that knew the topic before would go on asking for the leaders of the old one.
        self.consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "bench",
                                  "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        until = time.monotonic() + 30
        while True:
            try:
                if self.record_count() == 0:
                    return
            except KafkaException:
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def record_count(self):
        parts = [TopicPartition(TOPIC, i) for i in range(PARTITIONS)]
        return sum(self.consumer.get_watermark_offsets(tp, timeout=10)[1] for tp in parts)

    def records(self, count):
        """Yields the first `count` records of the topic."""
        self.consumer.assign([TopicPartition(TOPIC, i, 0) for i in range(PARTITIONS)])
        while count > 0:
            got = self.consumer.consume(min(count, 5000), timeout=10)
            if not got:
                raise SystemExit(f"the topic ended {count} records early")
            for record in got:
                if record.error():
                    raise SystemExit(f"reading the topic back: {record.error()}")
                yield record
            count -= len(got)
        self.consumer.unassign()
