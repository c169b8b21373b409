"""A router whose checkpoint is in a bucket of a real S3 server: killed at moments of chance, its machine's files gone
each time, replaced while it runs, its bucket away; what comes out is what comes out on a disk that is never lost."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import ok
from tests.pipeline.support import RouterProcess, archive_ids, ledger, make_stream, needs_java, publish, records
from tests.support.s3 import BUCKET, IDENTITY, S3Server, running_s3
from tests.support.server import BrokerProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

IDS = 900
PARTITIONS = 2
PIPELINE = """
name: {name}
checkpoint: {{path: "s3://{bucket}/pipelines/{name}", endpoint: "{endpoint}", region: us-east-1, work_dir: {work}}}
batch: {{max_records: 150, interval: 100ms}}
sources:
  web: {{type: stream, stream: {name}-web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
  once: {{type: dedupe, inputs: [parsed], by: [attributes.id], window: 1d}}
  load:
    type: aggregate
    inputs: [once]
    window: 10s
    lateness: 1m
    metrics: {{ids: {{type: sum, of: attributes.id}}}}
sinks:
  events: {{type: stream, inputs: [once], stream: {name}-events}}
  metrics: {{type: stream, inputs: [load], stream: {name}-metrics}}
  archive: {{type: parquet, inputs: [once], path: ./archive, on_failure: retry}}
  lines: {{type: file, inputs: [once], path: ./lines/app.jsonl, on_failure: retry}}
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    pytest.importorskip("obstore")
    with running_s3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in IDENTITY.items():
            patched.setenv(name, value)
        yield server


def _lines() -> list[bytes]:
    """Ten ids for each window; each comes twice, the second time on the other of two partitions."""
    found = []
    for first in range(0, IDS, 100):
        ids = [*range(first, first + 100), *range(first + 1, first + 100), first]
        found += [json.dumps({"id": one, "time": 1_700_000_000 + one}).encode() for one in ids]
    return found


class Place:
    """One pipeline on a machine that loses its files."""

    def __init__(self, name: str, broker: BrokerProcess, s3: S3Server, directory: Path, work: str = "./work") -> None:
        self.name, self.broker, self.s3, self.directory = name, broker, s3, directory
        self.work = directory / work
        directory.mkdir(exist_ok=True)
        self.file = directory / f"{name}.yaml"
        self.file.write_text(PIPELINE.format(name=name, bucket=BUCKET, endpoint=s3.endpoint, work=work))

    def feed(self) -> None:
        make_stream(self.broker.kafka, f"{self.name}-web", PARTITIONS)
        publish(self.broker.kafka, f"{self.name}-web", _lines(), PARTITIONS)

    def router(self, *arguments: str) -> RouterProcess:
        return RouterProcess(self.file, self.broker.kafka, *arguments)

    def count(self, pattern: str) -> int:
        """Files of the working directory, those that are gone by now included: numbers only grow."""
        numbers = (int(path.stem) for path in self.work.glob(pattern) if path.stem.isdigit())
        return max(numbers, default=-1) + 1

    def bundles(self) -> int:
        """The number of the last one in the bucket."""
        found = self.s3.bucket.glob(f"pipelines/{self.name}/bundles/*")
        return max((int(path.name) for path in found if path.name.isdigit()), default=0)

    def lose_machine(self) -> None:
        shutil.rmtree(self.work)

    def check_outcome(self) -> None:
        """Every count as on a checkpoint that was never lost."""
        total = ledger(self.work)["total"]
        assert total["records_in"] == {"web": 2 * IDS}
        assert (total["dropped"]["once"], total["dropped"]["load.late"]) == (IDS, 0)
        assert sorted(archive_ids(self.directory / "archive").values()) == [1] * IDS
        lines = [json.loads(line) for line in (self.directory / "lines" / "app.jsonl").read_text().splitlines()]
        assert Counter(line["attributes"]["id"] for line in lines) == dict.fromkeys(range(IDS), 1)
        by_id: dict[str, Any] = {}
        for stream in ("events", "metrics"):
            for message in records(self.broker.kafka, f"{self.name}-{stream}"):
                event = json.loads(message.value())
                assert by_id.setdefault(event["event_id"], event) == event, "what is written again is the same"
        attributes = [event["attributes"] for event in by_id.values()]
        assert Counter(one["id"] for one in attributes if "id" in one) == dict.fromkeys(range(IDS), 1)
        for one in attributes:
            if "metric.start" in one:
                first = one["metric.start"] // 1_000_000 - 1_700_000_000
                assert one["metric.value"] == sum(range(first, first + 10))


MOMENTS = (
    "pins/batches/*.json",
    "router/offsets/*",
    "state/memories/*.json",
    "ledger/*.json",
    "router/commits/*",
    "deliveries/archive/query/offsets/*",
    "deliveries/lines/query/commits/*",
)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("loses_machine", [True, False], ids=["files gone", "files kept"])
def test_kill_9_at_moments_of_chance_loses_and_repeats_nothing(
    broker: BrokerProcess, s3: S3Server, tmp_path: Path, loses_machine: bool
) -> None:
    place = Place("moved" if loses_machine else "stayed", broker, s3, tmp_path)
    place.feed()
    for _ in range(4):
        with place.router() as router:
            moment = random.choice(MOMENTS)
            goal = _Reached(place, moment)
            until(lambda: goal() or not router.alive(), f"one more of {moment}", every_s=0.002)  # noqa: B023
            assert router.alive(), router.log_text()[-3_000:]
            router.kill9(group=True)
        if loses_machine:
            place.lose_machine()
    with place.router("--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    place.check_outcome()
    assert not list(s3.bucket.rglob("pipelines/*/lock"))


class _Reached:
    """Whether a run has made one more file of a kind than it began with, once it has taken the checkpoint over."""

    def __init__(self, place: Place, moment: str) -> None:
        self._place, self._moment = place, moment
        self._bundles = place.bundles()
        self._first: int | None = None

    def __call__(self) -> bool:
        if self._first is None:
            if self._place.bundles() > self._bundles:
                self._first = self._place.count(self._moment)
            return False
        return self._place.count(self._moment) > self._first


def test_a_second_driver_takes_over_and_the_first_ends_by_name(
    broker: BrokerProcess, s3: S3Server, tmp_path: Path
) -> None:
    first = Place("handed", broker, s3, tmp_path, "./first")
    second = Place("handed", broker, s3, tmp_path, "./second")
    first.feed()
    first.file = tmp_path / "first.yaml"
    first.file.write_text(second.file.read_text().replace("./second", "./first"))
    with first.router() as old:
        until(lambda: first.count("ledger/*.json") >= 1 or not old.alive(), "a batch of the first driver")
        assert old.alive(), old.log_text()[-3_000:]
        with second.router("--once") as new:
            # What the first had planned when it was replaced may be all that there was: a record makes it try again.
            until(lambda: (second.work / "pipeline.json").exists() or not new.alive(), "the second driver has begun")
            assert old.wait() == 1
            said = old.log_text()
            assert "the checkpoint s3://logs/pipelines/handed was taken over by " in said, said[-3_000:]
            assert new.wait() == 0, new.log_text()[-3_000:]
    second.check_outcome()


def test_a_bucket_that_is_away_is_waited_for(broker: BrokerProcess, s3: S3Server, tmp_path: Path) -> None:
    place = Place("waiting", broker, s3, tmp_path)
    place.feed()
    with place.router() as router:
        until(lambda: place.count("ledger/*.json") >= 1 or not router.alive(), "a batch")
        s3.kill9()
        until(lambda: "restarts in" in router.log_text() or not router.alive(), "a query fails")
        assert router.alive(), router.log_text()[-3_000:]
        committed = place.count("router/commits/*")
        s3.start()
        until(lambda: place.count("router/commits/*") > committed or not router.alive(), "a batch is committed")
        assert router.sigterm() == 0, router.log_text()[-3_000:]
    place.lose_machine()
    with place.router("--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    place.check_outcome()


def test_commands_read_the_bucket_where_the_pipeline_does_not_run(
    broker: BrokerProcess, s3: S3Server, tmp_path: Path
) -> None:
    place = Place("looked-at", broker, s3, tmp_path)
    place.feed()
    with place.router("--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    place.lose_machine()
    volume = ok("pipeline", "volume", str(place.file), "--since", "1d", "--json", bootstrap=broker.kafka).json
    assert volume["ledger"]["records_in"] == {"web": 2 * IDS}
    assert "nothing to do" in ok("pipeline", "repin", str(place.file), bootstrap=broker.kafka).out
    assert "no errors" in ok("pipeline", "check", str(place.file), "--connect", bootstrap=broker.kafka).out
    assert place.count("ledger/*.json") > 0, "repin looked at the files in the working directory"
