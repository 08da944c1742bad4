"""The relays that are compared: each has a label, a pid once started, start(slot) and stop()."""
import os
import signal
import subprocess
from pathlib import Path

import psycopg

from lab import PUBLICATION

HERE = Path(__file__).parent

CONFIG = """name = "{slot}"
[source.postgres]
url = "postgres://{user}@{host}:{port}/{database}?sslmode=disable"
slot = "{slot}"
publication = "{publication}"
start = "now"
[outbox]
tables = ["public.outbox"]
[sink.kafka]
bootstrap-servers = "{bootstrap}"
positions-topic = "bench.positions"
[http]
listen = ""
"""


class Process:
    """A child process with its output in a log file, or with `mute` only what it says on standard error."""

    def launch(self, command, log, mute=False):
        with open(log, "ab") as out:
            self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL if mute else out, stderr=out,
                                          stdin=subprocess.DEVNULL)
        self.pid, self.log = self.child.pid, log

    def check(self):
        if self.child.poll() is not None:
            tail = Path(self.log).read_text(errors="replace").splitlines()[-15:]
            raise SystemExit("\n".join([f"{self.label} ended with {self.child.returncode}:", *tail]))

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(60)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
                print(f"{self.label} had to be killed", flush=True)


class Outboxd(Process):
    """Every slot gets an instance of its own name, so that no position record of an earlier run stands in its way."""
    label = "outboxd"

    def __init__(self, binary, bootstrap, folder, extra=""):
        self.binary, self.bootstrap, self.folder, self.extra = binary, bootstrap, Path(folder), extra

    def start(self, slot):
        file = self.folder / f"{slot}.toml"
        file.write_text(CONFIG.format(
            user=os.environ["PGUSER"], host=os.environ["PGHOST"], port=os.environ["PGPORT"],
            database=os.environ["PGDATABASE"], slot=slot, publication=PUBLICATION, bootstrap=self.bootstrap) + self.extra)
        self.launch([self.binary, "run", "--config", str(file)], self.folder / "outboxd.log")


class Debezium(Process):
    """Kafka Connect standalone with Debezium and its outbox EventRouter."""

    def __init__(self, kind, bootstrap, folder):
        self.label, self.kind, self.bootstrap = f"Debezium ({kind})", kind, bootstrap
        self.folder = Path(folder) / f"connect-{kind}"

    def start(self, slot):
        self.folder.mkdir(exist_ok=True)
        (self.folder / "offsets").unlink(missing_ok=True)
        text = (HERE / "connect/postgres-outbox.properties").read_text()
        if self.kind != "default":
            text += (HERE / f"connect/{self.kind}.properties").read_text()
        file = self.folder / "outbox.properties"
        file.write_text(text)
        self.run("start", self.bootstrap, str(file), SLOT=slot, PUBLICATION=PUBLICATION)
        self.pid = int((self.folder / "connect.pid").read_text())

    def run(self, verb, *args, **env):
        subprocess.run([HERE.parent / "tests/services/connect.sh", verb, self.folder, *args], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, **env})

    def check(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            raise SystemExit(f"{self.label} ended, see {self.folder}/connect.log") from None

    def stop(self):
        self.run("stop")


class Polling(Process):
    """polling_relay.py on a table of its own, filled anew from the backlog's rows."""
    label = "polling relay"

    def __init__(self, python, bootstrap, folder):
        self.python, self.bootstrap, self.folder = python, bootstrap, Path(folder)

    def fill(self):
        with psycopg.connect("", autocommit=True) as db:
            db.execute("drop table if exists outbox_poll")
            subprocess.run([self.python, HERE / "polling_relay.py", "--make-table"], check=True)
            db.execute("insert into outbox_poll(id, aggregatetype, aggregateid, type, payload)"
                       " select id, aggregatetype, aggregateid, type, payload from outbox")
            db.execute("vacuum analyze outbox_poll")

    def start(self, slot):
        self.launch([self.python, str(HERE / "polling_relay.py"), self.bootstrap], self.folder / "polling.log")
