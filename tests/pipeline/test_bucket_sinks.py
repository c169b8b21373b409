"""A router whose checkpoint is in a bucket, with a table to look up, an Iceberg table, a server that takes requests,
and dead letters: killed and stopped at moments that matter to them, its machine's files gone each time, and edited."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import ok
from tests.pipeline.support import RouterProcess, archive_ids, header, make_stream, needs_java, publish, records
from tests.pipeline.test_bucket_kill import Place, s3
from tests.pipeline_sinks.contracts.webhook import Webhook
from tests.pipeline_sinks.server import Server
from tests.support.s3 import S3Server
from tests.support.server import BrokerProcess
from tests.support.waiting import until

hadoop_catalog = pytest.importorskip("logboom.pipeline.sinks.iceberg.hadoop_catalog")
pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

__all__ = ["s3"]
ROUND = 300
"""Lines for each life of the router."""
PIPELINE = """
name: shelved
checkpoint: {{path: "s3://logs/pipelines/shelved", endpoint: "{endpoint}", region: us-east-1, work_dir: ./work}}
batch: {{max_records: 150, interval: 100ms}}
sources:
  web: {{type: stream, stream: shelved-web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
  named:
    type: enrich
    inputs: [parsed]
    table: {{type: csv, path: teams.csv, key: id}}
    on: attributes.team_id
    fields: {{team: attributes.team}}
sinks:
  hook:
    type: webhook
    inputs: [named]
    url: {url}/hook
    token_file: token
    batch: {{max_events: 20, max_age: 200ms}}
    timeout: 5s
    retry_for: 0
    concurrency: 1
    on_failure: retry
  lake: {{type: iceberg, inputs: [named], path: ./lake, table: logs.events, interval: 1s, on_failure: retry}}
  out: {{type: stream, inputs: [named], stream: shelved-out}}
  archive: {{type: parquet, inputs: [named], path: ./archive, on_failure: retry}}
"""


@pytest.fixture
def hook() -> Iterator[Server]:
    with Server(Webhook()) as server:
        yield server


class Shelf(Place):
    """The pipeline on a machine that loses its files, life after life."""

    def __init__(self, broker: BrokerProcess, s3: S3Server, hook: Server, directory: Path) -> None:
        super().__init__("shelved", broker, s3, directory)
        self.hook, self.published = hook, 0
        self.file.write_text(PIPELINE.format(endpoint=s3.endpoint, url=hook.url))
        (directory / "token").write_text(hook.contract.secret)
        (directory / "teams.csv").write_text(
            "id,team,lead\n" + "".join(f"{number},team-{number},ann\n" for number in range(5))
        )
        make_stream(broker.kafka, "shelved-web", 2)

    def publish(self, *, poison: bool = False) -> None:
        """Lines of which one, where asked for, is refused by the server."""
        numbers = range(self.published, self.published + ROUND)
        lines = [
            {"msg": "poison" if poison and number == numbers[7] else f"line {number}", "team_id": number % 6}
            for number in numbers
        ]
        publish(self.broker.kafka, "shelved-web", [json.dumps(line).encode() for line in lines], 2)
        self.published += ROUND

    @property
    def bootstrap(self) -> str:
        return self.broker.kafka

    @property
    def ids(self) -> set[str]:
        return {f"shelved-web:{number % 2}:{number // 2}" for number in range(self.published)}

    @property
    def taken(self) -> int:
        """Events that the server has, each counted once."""
        return len(self.hook.contract.events)

    def let_through(self, requests: int) -> None:
        """The server takes so many requests, and answers 500 to all others."""
        self.hook.faults.next = [None] * requests
        self.hook.faults.always = "500"

    def await_failure(self, router: RouterProcess) -> None:
        """Until an attempt has failed, what it has done is in the bucket, and another attempt has begun."""
        self.hook.faults.applied.clear()
        until(lambda: self.hook.faults.applied["500"] >= 4 or not router.alive(), "attempts that fail")
        assert router.alive(), router.log_text()[-3_000:]

    def recover(self) -> None:
        self.hook.faults.next, self.hook.faults.always = [], None


def test_every_sink_goes_on_with_a_checkpoint_in_a_bucket(
    broker: BrokerProcess,
    s3: S3Server,
    hook: Server,
    tmp_path: Path,
) -> None:
    shelf = Shelf(broker, s3, hook, tmp_path)
    _is_killed_between_attempts(shelf)
    _is_stopped_between_attempts_and_edited(shelf)
    _is_killed_amid_commits_of_the_table(shelf)
    _is_killed_amid_a_batch_and_edited(shelf)
    with shelf.router("--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    shelf.lose_machine()
    _each_sink_has_each_event_once(shelf)
    _commands_find_nothing_wrong(shelf)


def _is_killed_between_attempts(shelf: Shelf) -> None:
    """With the files of its machine: the next life sends the rest of the batch alone."""
    notes = shelf.work / "deliveries" / "hook" / "partial.json"
    shelf.let_through(3)
    with shelf.router() as router:
        shelf.publish()
        until(lambda: notes.exists() or not router.alive(), "a part of a batch is noted")
        shelf.await_failure(router)
        router.kill9(group=True)
    shelf.lose_machine()
    assert 0 < sum(shelf.hook.contract.events.values()) < ROUND


def _is_stopped_between_attempts_and_edited(shelf: Shelf) -> None:
    before = shelf.taken
    shelf.let_through(2)
    with shelf.router() as router:
        until(lambda: shelf.taken > before or not router.alive(), "another part")
        shelf.await_failure(router)
        shelf.file.write_text(shelf.file.read_text().replace("fields: {team:", "fields: {lead: attributes.lead, team:"))
        assert "continues with" in ok("pipeline", "reload", str(shelf.file), bootstrap=shelf.bootstrap).out
        shelf.await_failure(router)
        assert router.sigterm() == 0, router.log_text()[-3_000:]
    shelf.lose_machine()
    assert max(shelf.hook.contract.events.values()) == 1


def _is_killed_amid_commits_of_the_table(shelf: Shelf) -> None:
    """One event is refused meanwhile: its letter is written once."""
    shelf.recover()
    for moment in ("deliveries/lake/query/offsets/*", "deliveries/lake/query/commits/*"):
        with shelf.router() as router:
            seen = shelf.count(moment)
            shelf.publish(poison=seen == 0)
            until(lambda: shelf.count(moment) > seen + 1 or not router.alive(), moment, every_s=0.002)  # noqa: B023
            assert router.alive(), router.log_text()[-3_000:]
            router.kill9(group=True)
        shelf.lose_machine()


def _is_killed_amid_a_batch_and_edited(shelf: Shelf) -> None:
    """Another file is then to run the batch again."""
    with shelf.router() as router:
        seen = shelf.count("pins/batches/*.json")
        shelf.publish()
        until(lambda: shelf.count("pins/batches/*.json") > seen or not router.alive(), "a batch", every_s=0.002)
        assert router.alive(), router.log_text()[-3_000:]
        router.kill9(group=True)
    shelf.lose_machine()
    shelf.file.write_text(shelf.file.read_text().replace("fields: {lead: attributes.lead, team:", "fields: {team:"))
    ok("pipeline", "repin", str(shelf.file), "--yes", bootstrap=shelf.bootstrap)
    shelf.lose_machine()


def _each_sink_has_each_event_once(shelf: Shelf) -> None:
    """The server has each, but for the one that it refuses, of which there is a letter."""
    directory = shelf.directory
    rows = hadoop_catalog.HadoopCatalog(directory / "lake").load_table("logs.events").scan().to_arrow()
    assert Counter(rows.column("event_id").to_pylist()) == Counter(shelf.ids)
    assert archive_ids(directory / "archive") == Counter(shelf.ids)
    letters = records(shelf.bootstrap, "shelved.dead.hook")
    dead = [json.loads(letter.value()) for letter in letters]
    assert set(shelf.hook.contract.events) | {event["event_id"] for event in dead} == shelf.ids
    assert {event["body"] for event in dead} <= {"poison"}
    assert all("poison" in str(header(one, "logboom-dead-reason")) for one in letters)
    for text in rows.column("attributes").to_pylist():
        found = json.loads(text)
        assert found.get("team") == (f"team-{found['team_id']}" if found["team_id"] < 5 else None)


def _commands_find_nothing_wrong(shelf: Shelf) -> None:
    file, bootstrap = str(shelf.file), shelf.bootstrap
    assert "nothing to do" in ok("pipeline", "repin", file, bootstrap=bootstrap).out
    shelf.lose_machine()
    assert "no errors" in ok("pipeline", "check", file, "--connect", bootstrap=bootstrap).out
    comparing = ("pipeline", "compare", file, "out", "archive", "--settle", "1ms", "--json")
    compared = ok(*comparing, bootstrap=bootstrap).json_lines
    assert [(one["sink"], one["events"], one["lacks"]) for one in compared] == [
        ("out", shelf.published, 0),
        ("archive", shelf.published, 0),
    ]
