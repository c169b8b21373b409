"""A replay as a process beside the running pipeline, whose sink it writes too, while new lines keep coming."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import (
    RouterProcess,
    archive_ids,
    header,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import until

from logboom.pipeline.edge.streams import StreamAdmin

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

FILE = """
name: beside
checkpoint: ./checkpoint
batch: {interval: 100ms}
sources:
  web: {type: stream, stream: beside-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  masked: {type: mask, inputs: [parsed], rules: [{kind: email, action: redact}]}
  split: {type: route, inputs: [masked], routes: {errors: "severity_number >= 17"}}
sinks:
  errors: {type: stream, inputs: [split.errors], stream: beside-errors}
  archive: {type: parquet, inputs: [masked], path: ./archive}
"""
PAST, RATE, PARTITIONS, AT_ONCE = 1_500, 100, 2, 20


def _line(number: int) -> bytes:
    level = "ERROR" if number % 2 else "INFO"
    return json.dumps({"level": level, "n": number, "msg": f"{number} of ann@example.com"}).encode()


class _Publisher:
    """Publishes new lines until it is told to end."""

    def __init__(self, bootstrap: str, first: int) -> None:
        self.next, self._bootstrap = first, bootstrap
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.wait(0.2):
            lines = [_line(number) for number in range(self.next, self.next + AT_ONCE)]
            publish(self._bootstrap, "beside-web", lines, PARTITIONS)
            self.next += AT_ONCE

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()


def _events(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in records(broker.kafka, "beside-errors")]


def _ledgers(checkpoint: Path) -> list[dict[str, Any]]:
    paths = sorted((checkpoint / "ledger").glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def _taken(checkpoint: Path) -> int:
    """Records that the pipeline of this checkpoint has taken."""
    return sum(entry["ledger"]["records_in"]["web"] for entry in _ledgers(checkpoint))


def _began(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["started_at"]).timestamp()


def test_a_replay_beside_the_running_pipeline_disturbs_nothing_of_it(broker: BrokerProcess, tmp_path: Path) -> None:
    """It is killed on its way and goes on. The live pipeline takes each line once, in order, all the while."""
    bootstrap, file, checkpoint = broker.kafka, tmp_path / "beside.yaml", tmp_path / "checkpoint"
    file.write_text(FILE)
    make_stream(bootstrap, "beside-web", PARTITIONS)
    publish(bootstrap, "beside-web", [_line(number) for number in range(PAST)], PARTITIONS)
    publisher = _Publisher(bootstrap, PAST)
    with RouterProcess(file, bootstrap) as router:
        until(lambda: _taken(checkpoint) == PAST or not router.alive(), "the past is taken")
        time.sleep(0.002)  # the clock of records goes on
        border = datetime.now(UTC).isoformat(timespec="milliseconds")
        with publisher.running():
            name = _killed_and_resumed(file, bootstrap, border)
        until(lambda: _taken(checkpoint) == publisher.next or not router.alive(), "all lines are taken", every_s=0.5)
        until(lambda: archive_ids(tmp_path / "archive").total() >= publisher.next, "and archived", every_s=0.5)
        assert router.sigterm() == 0, router.log_text()[-3_000:]

    _check_live(broker, tmp_path, publisher.next)
    replays = _ledgers(checkpoint / "replays" / name)
    _check_replayed(broker, name, replays)
    meanwhile = [one for one in _ledgers(checkpoint) if _began(replays[0]) < _began(one) < _began(replays[-1])]
    assert sum(one["ledger"]["records_in"]["web"] for one in meanwhile) > 0, "live lines were taken beside the replay"
    _check_streams(StreamAdmin(bootstrap))


def _check_streams(admin: StreamAdmin) -> None:
    """The replay has left none, and nothing died."""
    counts = {stream: count for stream, count in admin.partitions().items() if "beside" in stream}
    assert not [stream for stream in counts if "replay" in stream]
    ends = admin.ends({stream: count for stream, count in counts.items() if stream.startswith("beside.dead.")})
    assert not any(any(partitions.values()) for partitions in ends.values())


def _killed_and_resumed(file: Path, bootstrap: str, border: str) -> str:
    """The name of the replay, which is killed between its first batches and its end."""
    replays = file.parent / "checkpoint" / "replays"
    begin = ("--sink", "errors", "--from", "1h", "--to", border, "--rate", str(RATE))
    with RouterProcess(file, bootstrap, *begin, command="replay") as replay:
        until(lambda: len(list(replays.glob("*/ledger/*.json"))) >= 3 or not replay.alive(), "batches of the replay")
        assert replay.alive(), replay.log_text()[-3_000:]
        replay.kill9()
    (begun,) = replays.iterdir()
    assert 0 < _taken(begun) < PAST
    with RouterProcess(file, bootstrap, "--resume", begun.name, command="replay") as replay:
        assert replay.wait() == 0, replay.log_text()[-3_000:]
    return begun.name


def _check_live(broker: BrokerProcess, directory: Path, count: int) -> None:
    """Each line once, in order, without a mark; and no event of the replay in the books or in the archive."""
    live = [event for event in _events(broker) if "logboom.replay" not in event["attributes"]]
    assert Counter(event["attributes"]["n"] for event in live) == Counter(range(1, count, 2))
    assert all(event["body"] == f"{event['attributes']['n']} of [email]" for event in live)
    by_partition: dict[int, list[int]] = {}
    for event in live:
        by_partition.setdefault(event["partition"], []).append(event["offset"])
    assert all(offsets == sorted(offsets) for offsets in by_partition.values())
    total = ledger(directory / "checkpoint")["total"]
    assert total["records_in"] == {"web": count}
    assert total["out"] == {"errors": count // 2, "masked": count}
    archived = archive_ids(directory / "archive")
    assert (len(archived), set(archived.values())) == (count, {1})


def _check_replayed(broker: BrokerProcess, name: str, entries: list[dict[str, Any]]) -> None:
    """Every event of the past with the mark and its old id, again at most those of the batch that was cut off; and no
    batch came sooner than the rate allows."""
    marked = [message for message in records(broker.kafka, "beside-errors") if b"logboom.replay" in message.value()]
    events = [json.loads(message.value()) for message in marked]
    assert {event["attributes"]["n"] for event in events} == set(range(1, PAST, 2))
    assert {event["attributes"]["logboom.replay"] for event in events} == {name}
    assert [header(message, "logboom-event-id") for message in marked] == [event["event_id"] for event in events]
    assert len(events) <= PAST // 2 + RATE
    assert sum(entry["ledger"]["records_in"]["web"] for entry in entries) == PAST
    for entry, following in pairwise(entries):
        assert entry["ledger"]["records_in"]["web"] <= RATE
        assert _began(following) - _began(entry) >= entry["ledger"]["records_in"]["web"] / RATE - 0.01
