"""What may be deleted from an edge, by Spark's files of every delivery that reads it; what is said when it fails."""

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from tests.pipeline.hadoop_checksums import as_spark_writes

from logboom.pipeline.checkpoint.spark_log import durably_committed
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.edge.trimming import Trimmer, read_by_all


def _delivery(directory: Path, name: str, *ends: dict[str, dict[str, int]], commits: int) -> None:
    """As Spark leaves it: so many batches planned, so many of them committed."""
    query = directory / name / "query"
    (query / "offsets").mkdir(parents=True)
    (query / "commits").mkdir()
    for batch, end in enumerate(ends):
        text = f'v2\n{{"batchWatermarkMs":0}}\nedges:{json.dumps(end)}'
        as_spark_writes(query / "offsets" / str(batch), text.encode())
    for batch in range(commits):
        as_spark_writes(query / "commits" / str(batch), b"v1\n{}")


def test_the_last_unfinished_batch_is_kept(tmp_path: Path) -> None:
    ends = [{"e": {"0": 10, "1": 5}}, {"e": {"0": 20, "1": 7}}, {"e": {"0": 30, "1": 9}}]
    _delivery(tmp_path, "a", *ends, commits=2)
    assert durably_committed(tmp_path / "a" / "query") == {"e": {0: 20, 1: 7}}
    assert read_by_all(tmp_path, {"a": {"e": 2}}) == {"e": {0: 20, 1: 7}}


def test_the_slowest_reader_decides_for_each_partition(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10, "1": 5}}, commits=1)
    _delivery(tmp_path, "b", {"e": {"0": 8, "1": 9}, "f": {"0": 3}}, commits=1)
    assert read_by_all(tmp_path, {"a": {"e": 2}, "b": {"e": 2, "f": 1}}) == {"e": {0: 8, 1: 5}, "f": {0: 3}}


def test_a_reader_that_has_committed_nothing_keeps_what_comes_after_its_start(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10}}, commits=1)
    _delivery(tmp_path, "new", {"e": {"0": 10}}, commits=0)
    assert read_by_all(tmp_path, {"a": {"e": 1}, "new": {"e": 1}}) == {"e": {0: 0}}
    (tmp_path / "new" / "start.json").write_text('{"e": {"0": 4}}')
    assert read_by_all(tmp_path, {"a": {"e": 1}, "new": {"e": 1}}) == {"e": {0: 4}}


def test_an_input_that_was_just_added_and_a_new_partition_are_kept_whole(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10}}, commits=1)
    assert read_by_all(tmp_path, {"a": {"e": 2, "f": 1}}) == {"e": {0: 10, 1: 0}, "f": {0: 0}}


def test_a_sink_that_left_the_file_holds_its_edge(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10}}, commits=1)
    _delivery(tmp_path, "left", {"e": {"0": 2}}, commits=1)
    assert read_by_all(tmp_path, {"a": {"e": 1}}) == {"e": {0: 2}}


class _Server:
    """Answers every request alike."""

    def __init__(self, error: int | None) -> None:
        self.error = error
        self.asked: list[dict[tuple[str, int], int]] = []

    def delete_before(self, offsets: dict[tuple[str, int], int]) -> dict[tuple[str, int], Future[Any]]:
        self.asked.append(offsets)
        answers: dict[tuple[str, int], Future[Any]] = {place: Future() for place in offsets}
        for future in answers.values():
            if self.error is None:
                future.set_result(None)
            else:
                future.set_exception(KafkaException(KafkaError(self.error)))
        return answers


def _minutes(directory: Path, server: _Server, count: int) -> list[str]:
    said: list[str] = []
    clock = [0.0]
    readers = {"a": {"e": 2}}
    trimmer = Trimmer(cast("StreamAdmin", server), directory, readers, said.append, now=lambda: clock[0])
    for _ in range(count * 120):
        trimmer.tick()
        clock[0] += 0.5
    trimmer.finish()
    return said


def test_nothing_is_asked_twice(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10, "1": 5}}, commits=1)
    server = _Server(None)
    assert _minutes(tmp_path, server, 5) == []
    assert server.asked == [{("e", 0): 10, ("e", 1): 5}]


def test_a_server_that_cannot_delete_is_told_of_once_and_asked_no_more(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10, "1": 5}}, commits=1)
    server = _Server(KafkaError.UNSUPPORTED_VERSION)
    (said,) = _minutes(tmp_path, server, 5)
    assert said.startswith("delivered records stay in e, since the server does not delete them")
    assert len(server.asked) == 1


def test_a_server_that_refuses_is_asked_again_and_told_of_once(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10}}, commits=1)
    server = _Server(KafkaError.POLICY_VIOLATION)
    assert len(_minutes(tmp_path, server, 5)) == 1
    assert len(server.asked) > 3


def test_a_server_that_is_away_is_no_news(tmp_path: Path) -> None:
    _delivery(tmp_path, "a", {"e": {"0": 10}}, commits=1)
    server = _Server(KafkaError._TRANSPORT)
    assert _minutes(tmp_path, server, 5) == []
    assert len(server.asked) > 3
