"""The topic that the relays write to."""
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "outbox.event.order"
PARTITIONS = 4


class Topic:
    """Connections to the broker."""

    def __init__(self, bootstrap, broker_pid):
        self.bootstrap, self.broker_pid = bootstrap, broker_pid
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.consumer = None

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
