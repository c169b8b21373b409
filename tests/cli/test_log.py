"""logboom log: a data directory of a running, a killed and a damaged broker."""

import json
import os
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.running import logboom, ok, refused
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

SEGMENT = "00000000000000000000.log"


def state(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and "__consumer" not in str(path)
    }


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        ok("streams", "create", "orders", "--partitions", "2", bootstrap=broker.kafka)
        ok("streams", "create", "views", "--config", "segment.bytes=16384", bootstrap=broker.kafka)
        lines = "".join(f"value-{n}\n" for n in range(100))
        ok("publish", "views", bootstrap=broker.kafka, stdin=lines)
        running = ok("log", "verify", str(data), "--json").json
        assert (running["damaged"], running["damage"], running["notes"]) == (False, [], [])
        assert ok("log", "dump", str(data), "--stream", "views", "--count", "1").out.endswith("  -  value-0\n")
        broker.kill9()
    return data


def test_a_killed_brokers_directory_is_read_and_not_touched(killed: Path) -> None:
    before = state(killed)
    text = ok("log", "verify", str(killed)).out
    assert text.rstrip().endswith("nothing is damaged")
    rows = {row["log"]: row for row in ok("log", "dump", str(killed), "--json").json}
    assert (rows["views-0"]["start"], rows["views-0"]["durable_end"]) == (0, 100)
    assert {"metadata", "orders-0", "orders-1"} <= rows.keys()
    table = ok("log", "dump", str(killed)).out.splitlines()
    assert table[0].split() == ["LOG", "START", "DURABLE", "END", "SEGMENTS", "BYTES"]
    picked = ok("log", "dump", str(killed), "--stream", "views", "--offset", "42", "--count", "3", "--json").json_lines
    assert [(one["offset"], one["value"]) for one in picked] == [(n, f"value-{n}") for n in (42, 43, 44)]
    assert picked[0]["file"] == f"streams/views-0/{SEGMENT}"
    facts = [json.loads(one["value"]) for one in ok("log", "dump", str(killed), "--metadata", "--json").json_lines]
    assert {"orders", "views"} <= {fact.get("name") for fact in facts}
    alone = ok("log", "dump", str(killed / "streams" / "views-0"), "--json").json_lines
    assert len(alone) == 100
    assert "1 log," in ok("log", "verify", str(killed / "streams" / "views-0")).out
    assert state(killed) == before


def test_a_directory_that_may_only_be_read_is_enough(killed: Path) -> None:
    for path in (killed, *killed.rglob("*")):
        os.chmod(path, 0o500 if path.is_dir() else 0o400)
    assert "nothing is damaged" in ok("log", "verify", str(killed)).out


def test_damage_is_named_and_the_rest_is_shown(killed: Path) -> None:
    segment = killed / "streams" / "views-0" / SEGMENT
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    (killed / "streams" / "orders-1" / SEGMENT).rename(killed / "streams" / "orders-1" / "gone.txt")
    (killed / "streams" / "lost.txt").write_text("?")
    ran = logboom("log", "verify", str(killed))
    assert ran.code == 1
    damage = [line for line in ran.out.splitlines() if line.startswith("damage: ")]
    assert damage[0].startswith(f"damage: streams/views-0/{SEGMENT} is damaged at byte 0 (offset 0): ")
    assert "note: streams/lost.txt: is no log." in ran.out
    assert "gone.txt" in ran.out
    told = logboom("log", "verify", str(killed), "--json")
    assert told.code == 1
    assert told.json["damage"][0]["position"] == 0
    dumped = logboom("log", "dump", str(killed), "--stream", "views")
    assert dumped.code == 1
    assert f"streams/views-0/{SEGMENT} is damaged at byte 0" in dumped.err


def test_a_partition_that_is_gone_is_damage(killed: Path) -> None:
    (killed / "streams" / "orders-1").rename(killed / "elsewhere")
    ran = logboom("log", "verify", str(killed))
    assert ran.code == 1
    assert "streams/orders-1 is damaged at byte 0: the directory is missing" in ran.out


def test_a_directory_that_is_not_a_data_directory_is_named_as_such(tmp_path: Path, killed: Path) -> None:
    assert "is not a directory" in refused("log", "verify", str(tmp_path / "nope"))
    (tmp_path / "empty").mkdir()
    assert "is not a data directory" in refused("log", "verify", str(tmp_path / "empty"))
    assert "there is no log streams/nope-0" in refused("log", "dump", str(killed), "--stream", "nope")
    (killed / "format.json").write_text('{"format": 99, "written_by": "Logboom 9"}')
    assert "Logboom 9" in refused("log", "verify", str(killed))


def wait_until_deleted(bootstrap: str, stream: str) -> None:
    """Return once the first records of a stream's only partition are gone."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch"})
    deadline = time.monotonic() + WAIT_S
    while consumer.get_watermark_offsets(TopicPartition(stream, 0), timeout=WAIT_S)[0] == 0:
        assert time.monotonic() < deadline, "nothing was deleted"
        time.sleep(0.05)
    consumer.close()


def test_a_broker_at_work_is_never_taken_for_a_damaged_one(tmp_path: Path) -> None:
    """Segments roll and are deleted while they are read."""
    data = tmp_path / "data"
    with BrokerProcess(data, "--set", "broker.retention_check_interval_s=0.02") as broker:
        small = ["--config", "segment.bytes=16384", "--config", "logboom.retention.messages=100"]
        ok("streams", "create", "busy", *small, bootstrap=broker.kafka)
        stop = threading.Event()

        def write() -> None:
            # Batches that fit into the segments: larger ones would be refused.
            producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 1, "batch.size": 8_192})
            while not stop.is_set():
                if len(producer) < 500:
                    producer.produce("busy", os.urandom(700))
                producer.poll(0.0005)
            producer.flush(WAIT_S)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            wait_until_deleted(broker.kafka, "busy")
            looks = [logboom("log", "verify", str(data), "--json") for _ in range(6)]
        finally:
            stop.set()
            writer.join()
        for look in looks:
            assert look.code == 0, look.out + look.err
            assert (look.code, look.json["damage"], look.json["notes"]) == (0, [], []), look.out
        started = [row for row in ok("log", "dump", str(data), "--json").json if row["log"] == "busy-0"]
        assert started[0]["start"] > 0, "retention was at work"
