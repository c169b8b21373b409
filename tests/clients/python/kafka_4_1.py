"""kafka-python, told that it talks to Kafka 4.1: it asks for no versions and sends the latest of that Kafka's APIs.

kafka_4_1.py BOOTSTRAP prints what a group read and committed.
"""

import sys

from kafka.admin import KafkaAdminClient

from kafka import KafkaConsumer, KafkaProducer

WAIT_S = 120

server = {"bootstrap_servers": sys.argv[1], "api_version": (4, 1)}
with KafkaProducer(**server) as producer:
    for n in range(3):
        producer.send("orders", b"%d" % n).get(WAIT_S)
group = {"group_id": "shop", "auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_S * 1_000}
with KafkaConsumer("orders", **group, **server) as consumer:
    values = [next(consumer).value for _ in range(3)]
    consumer.commit()
with KafkaAdminClient(**server) as admin:
    offsets = admin.list_group_offsets(["shop"])
print(values, [position.offset for position in offsets["shop"].values()])
