"""Replays of archives that are not as one would wish: with a hole, of very many files, of events with two times."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from tests.cli.running import ok, refused
from tests.pipeline.archived import FILE, Archived, line, run_replay
from tests.pipeline.support import RouterProcess, Said, ledger, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]


def _marked(bootstrap: str, name: str) -> list[dict[str, Any]]:
    """What replays have sent."""
    events = [json.loads(message.value()) for message in records(bootstrap, f"{name}-errors")]
    return [event for event in events if "logboom.replay" in event["attributes"]]


def _files(archive: Path) -> list[Path]:
    return sorted(path for path in archive.rglob("*.parquet") if "_logboom" not in path.parts)


def _cut(archive: Path, offsets: int) -> None:
    """Makes a file of each so many offsets of a partition, as they are before they are merged."""
    for file in _files(archive):
        table = pq.ParquetFile(file).read()
        pieces: dict[tuple[int, int], list[int]] = {}
        for row, (partition, offset) in enumerate(
            zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        ):
            pieces.setdefault((partition, offset // offsets * offsets), []).append(row)
        for (partition, first), rows in pieces.items():
            pq.write_table(table.take(rows), file.with_name(f"cut-{partition}-{first}.parquet"))
        file.unlink()


def test_an_archive_with_a_hole_is_not_believed(broker: BrokerProcess, tmp_path: Path, spark: Any) -> None:
    """A file is removed from its middle. What it had is told; nothing is sent unless that is asked for."""
    past = Archived(broker, tmp_path, "holed", spark, deleted=30, count=60)
    call = ("pipeline", "replay", str(past.file), "--sink", "errors", "--from", "1h", "--dry-run")
    _cut(tmp_path / "archive", 10)
    assert ok(*call, "--json", bootstrap=past.bootstrap).json["events"] == 30
    (hole,) = (tmp_path / "archive").rglob("cut-1-10.parquet")
    hole.unlink()
    told = refused(*call, bootstrap=past.bootstrap)
    assert "the archive archive may lack holed-web/1 from offset 10 to 19" in told
    assert "--partial replays what there is" in told
    rest = ok(*call, "--partial", "--json", bootstrap=past.bootstrap).json
    assert (rest["from_archive"], rest["events"]) == (50, 20)
    ledgers = tmp_path / "checkpoints" / "holed" / "ledger"
    for path in ledgers.iterdir():
        path.unlink()  # nobody knows any more whether records were dropped
    assert ok(*call, "--json", bootstrap=past.bootstrap).json["events"] == 20


@pytest.mark.slow
def test_what_goes_from_an_archive_while_it_is_replayed_is_told(
    broker: BrokerProcess, tmp_path: Path, spark: Any
) -> None:
    """A file is removed behind the first of two slices; the replay goes on with what is there when it is resumed."""
    past = Archived(broker, tmp_path, "going", spark)
    _cut(tmp_path / "archive", 5)

    def remove() -> None:
        for partition in range(2):
            next((tmp_path / "archive").rglob(f"cut-{partition}-5.parquet")).unlink()

    with pytest.raises(PipelineError, match=r"5 of the 10 remaining events were deleted from the archive; --resume"):
        past.replay(past.plan, sink="errors", room_bytes=1, behind_first=remove)
    replayed, _ = past.replay(past.plan, sink="errors", room_bytes=1)
    assert ledger(tmp_path / replayed.checkpoint)["total"]["records_in"] == {"archived": 10 + 5}


@pytest.mark.slow
def test_what_the_log_deletes_before_a_replay_comes_to_it_is_told(broker: BrokerProcess, tmp_path: Path) -> None:
    """It goes at a bounded rate, and retention does not wait for it."""
    bootstrap, count, file = broker.kafka, 1_000, tmp_path / "outrun.yaml"
    file.write_text(FILE.replace("past", "outrun"))
    make_stream(bootstrap, "outrun-web", 2)
    publish(bootstrap, "outrun-web", [line(number) for number in range(count)], 2)
    replays = tmp_path / "checkpoints" / "outrun" / "replays"
    begin = ("--sink", "errors", "--from", "1h", "--rate", "50")
    with RouterProcess(file, bootstrap, *begin, command="replay") as replay:
        until(lambda: any(replays.glob("*/ledger/*.json")) or not replay.alive(), "a batch")
        admin = StreamAdmin(bootstrap)  # kept until it has answered
        for done in admin.delete_before({("outrun-web", number): 450 for number in range(2)}).values():
            done.result(WAIT_S)
        assert replay.wait() == 0, replay.log_text()[-3_000:]
    told = re.findall(r"outrun-web/(\d): the log has deleted (\d+) records, from offset \d+ to 449", replay.log_text())
    (begun,) = replays.iterdir()
    read = ledger(begun)["total"]["records_in"]["web"]
    assert 100 <= read < count
    assert sorted(partition for partition, _ in told) == ["0", "1"]
    left_out = sum(int(number) for _, number in told)
    assert left_out < count - 100
    assert count - read - left_out <= 50, "no more than the one batch that was being read may have gone unseen"


@pytest.mark.slow
def test_an_archive_of_very_many_files_goes_once_more_into_a_sink(
    broker: BrokerProcess, tmp_path: Path, spark: Any
) -> None:
    """A file for each event. They are looked at for the choice, cut into slices and sent, each event once."""
    count = 2_000
    past = Archived(broker, tmp_path, "crumbs", spark, deleted=count // 2, count=count)
    _cut(tmp_path / "archive", 1)
    assert len(_files(tmp_path / "archive")) == count
    call = ("pipeline", "replay", str(past.file), "--sink", "errors", "--from", "1h")
    told = ok(*call, "--dry-run", "--json", bootstrap=past.bootstrap).json
    assert (told["from_log"], told["from_archive"], told["events"]) == (0, count, count // 2)
    run_replay(past.bootstrap, *call)
    ids = Counter(event["event_id"] for event in _marked(past.bootstrap, "crumbs"))
    assert (len(ids), set(ids.values())) == (count // 2, {1})


COUNT, SEAM, BEGIN_S = 40, 20, 1_700_000_000


class _TwoTimes:
    """A pipeline whose records have one time a second, and were seen first so many seconds later by their header."""

    def __init__(self, broker: BrokerProcess, directory: Path, name: str, spark: Any, seen_later_s: int) -> None:
        self.bootstrap, self.name, self._later_s = broker.kafka, name, seen_later_s
        self.file = directory / f"{name}.yaml"
        self.file.write_text(FILE.replace("past", name))
        make_stream(self.bootstrap, f"{name}-web", 1)
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number in range(COUNT):
            at_ms = (BEGIN_S + number) * 1_000
            headers: list[tuple[str, str | bytes | None]] = [
                ("log.observed_time_ms", str(at_ms + seen_later_s * 1_000)),
            ]
            producer.produce(f"{name}-web", line(2 * number + 1), partition=0, timestamp=at_ms, headers=headers)
        assert producer.flush(WAIT_S) == 0
        plan = compile_pipeline(self.file.read_text(), str(self.file))
        Runner(plan, RunOptions(bootstrap=self.bootstrap, once=True), Said()).run_in(spark)
        admin = StreamAdmin(self.bootstrap)  # kept until it has answered
        for done in admin.delete_before({(f"{name}-web", 0): SEAM}).values():
            done.result(WAIT_S)

    def call(self, begin_s: int, end_s: int) -> tuple[str, ...]:
        """A replay of these seconds."""
        times = [f"--{name}={_moment(second)}" for name, second in (("from", begin_s), ("to", end_s))]
        return ("pipeline", "replay", str(self.file), "--sink", "errors", *times)

    def wanted(self, begin_s: int, end_s: int) -> set[int]:
        """Offsets: by when events were seen where the archive is read; behind the seam by the records' time."""
        archived = {offset for offset in range(SEAM) if begin_s <= offset + self._later_s < end_s}
        return {*range(max(SEAM, begin_s), min(COUNT, end_s))} | (archived if begin_s <= SEAM else set())


def _moment(second: int) -> str:
    minutes, seconds = divmod(20 + second, 60)  # 1,700,000,000 is 22:13:20
    return f"2023-11-14T22:{13 + minutes}:{seconds:02}Z"


@pytest.mark.parametrize("seen_later_s", [-5, 5])
def test_at_the_seam_an_archive_goes_by_when_events_were_seen_and_the_log_by_its_own_time(
    broker: BrokerProcess, tmp_path: Path, spark: Any, seen_later_s: int
) -> None:
    name = f"times{seen_later_s}".replace("-", "m")
    times = _TwoTimes(broker, tmp_path, name, spark, seen_later_s)
    spans = [(begin, COUNT) for begin in (0, 10, SEAM - 1, SEAM, SEAM + 1, SEAM + 3)] + [(10, SEAM), (SEAM - 2, 25)]
    for span in spans:
        told = ok(*times.call(*span), "--dry-run", "--json", bootstrap=times.bootstrap).json
        assert told["events"] == len(times.wanted(*span)), (span, told)


@pytest.mark.slow
def test_no_event_comes_twice_at_a_seam_between_two_times(broker: BrokerProcess, tmp_path: Path, spark: Any) -> None:
    times = _TwoTimes(broker, tmp_path, "seamtimes", spark, 5)
    run_replay(times.bootstrap, *times.call(SEAM - 2, 30))
    offsets = [event["offset"] for event in _marked(times.bootstrap, "seamtimes")]
    assert Counter(offsets) == dict.fromkeys(times.wanted(SEAM - 2, 30), 1)
