"""The two servers of a run: slots, the topic, the backlog."""
import time

import psycopg

from topic import Topic

PUBLICATION = "pub_outbox"

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


class Lab(Topic):
    """Connections to the database (PGHOST, PGPORT, …) and to the broker."""

    def __init__(self, bootstrap, broker_pid):
        super().__init__(bootstrap, broker_pid)
        self.db = psycopg.connect("", autocommit=True)

    def load(self, slot, rows, per_tx=100, keys=1000, payload_bytes=300):
        """Makes `slot`, commits the backlog behind it, returns (seconds, WAL bytes, LSN of the last message)."""
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
        # at the log's end a reader would first decode all that was written since: nothing there is for it to read
        last = self.db.execute(
            "select max(lsn)::text from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', "
            "'publication_names', %s)", [slot, PUBLICATION]).fetchone()[0]
        return took, int(wal), last

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

    # the processes that serve a relay are new with each run
    served_before = 0

    def serving(self, slot):
        """The server's process that serves the relay: its walsender, or for polling (no slot) its backend."""
        return self.walsender(slot) if slot else self.backend("polling_relay")

    def walsender(self, slot):
        row = self.db.execute("select active_pid from pg_replication_slots where slot_name = %s", [slot]).fetchone()
        return row and row[0]

    def backend(self, application):
        row = self.db.execute("select pid from pg_stat_activity where application_name = %s", [application]).fetchone()
        return row and row[0]
