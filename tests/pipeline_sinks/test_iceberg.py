"""The sink `iceberg`: each event once in a table that other readers of Iceberg read, whatever is cut short."""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import LongType, StringType
from requests import ReadTimeout, RequestException, Session
from tests.pipeline_sinks.harness import Letters, event, pipeline_of, rows, sink_of
from tests.pipeline_sinks.server import Contract, Fault, Reply, Request, Server

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import Delivered, SinkContext
from logboom.pipeline.sinks.iceberg import IcebergSink, bounded_requests, catalogs, hadoop_catalog
from logboom.pipeline.sinks.iceberg import delivery as delivery_module
from logboom.pipeline.sinks.iceberg.columns import new_schema, new_spec
from logboom.pipeline.sinks.iceberg.delivery import IcebergDelivery, open_table, try_table
from logboom.pipeline.sinks.iceberg.hadoop_catalog import HadoopCatalog

KEYS = "type: iceberg, path: ./lake, table: logs.events"


@dataclass
class Lake:
    """A sink with a checkpoint and a warehouse in one directory; opened anew, it is the router's next process."""

    root: Path
    keys: str = KEYS
    letters: Letters = field(default_factory=Letters)

    @property
    def context(self) -> SinkContext:
        return SinkContext(
            resolve=lambda path: self.root / path,
            checkpoint=self.root / "checkpoint",
            notify=print,
            write_dead_letters=self.letters,
            letters=self.letters,
            secret=lambda ref: "no-secret",
        )

    def open(self) -> IcebergDelivery:
        writer = open_table(sink_of(self.keys), self.context)
        assert isinstance(writer, IcebergDelivery)
        return writer

    @property
    def table(self) -> Table:
        return HadoopCatalog(self.root / "lake").load_table("logs.events")

    def ids(self) -> Counter[str]:
        return Counter(self.table.scan().to_arrow().column("event_id").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def expected(*numbers: int) -> Counter[str]:
    return Counter({f"web:0:{number}": 1 for number in numbers})


def test_a_batch_is_a_snapshot_and_its_events_are_rows(lake: Lake) -> None:
    writer = lake.open()
    late = event(3, time="2026-11-24T00:00:00Z", attributes={"user": {"id": "ä"}})
    assert writer.deliver(rows([event(0), event(1)], [event(2), b"no event", late]), 0) == Delivered(
        "out", 0, rows=4, dead=1
    )
    assert lake.ids() == expected(0, 1, 2, 3)
    (letter,) = lake.letters.refused
    assert letter.value == b"no event"
    table = lake.table
    (snapshot,) = table.metadata.snapshots
    assert snapshot.summary is not None
    assert snapshot.summary["logboom.batch"] == "0"
    row = next(each for each in table.scan().to_arrow().to_pylist() if each["event_id"] == "web:0:3")
    assert row["time"] == datetime(2026, 11, 24, tzinfo=UTC)
    assert json.loads(row["attributes"]) == {"user": {"id": "ä"}}
    assert row["weight"] == 1.0
    days = {entry.file.partition[0] for entry in table.scan().plan_files()}
    assert len(days) == 2


def test_a_batch_that_was_committed_is_not_written_again_by_the_next_process(lake: Lake) -> None:
    lake.open().deliver(rows([event(0), event(1)]), 0)
    assert lake.open().deliver(rows([event(0), event(1)]), 0) == Delivered("out", 0)
    again = lake.open().deliver(rows([event(1), event(2)]), 1)
    assert (again.rows, again.repeats) == (1, 1)
    assert lake.ids() == expected(0, 1, 2)


@pytest.mark.parametrize(
    ("step", "at"),
    [("link", 0), ("write_durably", 0), ("sync_dir", 0), ("sync_dir", 4), ("_sync_file", 0), ("_sync_file", 3)],
)
def test_a_process_that_ends_at_any_step_of_a_commit_loses_and_repeats_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str, at: int
) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    where = os if step == "link" else hadoop_catalog
    cut = _Cut(getattr(where, step), at)
    with monkeypatch.context() as patched:
        patched.setattr(where, step, cut)
        with pytest.raises(CutError):
            lake.open().deliver(rows([event(0), event(1)], [event(2)]), 1)
    done = lake.open().deliver(rows([event(0), event(1)], [event(2)]), 1)
    assert done.error is None
    lake.open().deliver(rows([event(2), event(3)]), 2)
    assert lake.ids() == expected(0, 1, 2, 3)


def test_what_was_kept_of_a_batch_that_was_never_committed_does_not_count(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    with monkeypatch.context() as patched:
        patched.setattr(IcebergDelivery, "_commit", _Cut(None, 0))
        with pytest.raises(CutError):
            lake.open().deliver(rows([event(1), event(2)]), 1)
    assert lake.open().deliver(rows([event(1), event(2)]), 1).rows == 2
    assert lake.ids() == expected(0, 1, 2)


class CutError(BaseException):
    """The process ends here."""


class _Cut:
    """A function whose process ends at its `at`th call."""

    def __init__(self, real: Any, at: int) -> None:
        self._real = real
        self._left = at

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._left == 0:
            raise CutError
        self._left -= 1
        return self._real(*arguments, **named)


def _other_commit(lake: Lake, commit: Callable[..., Any] = HadoopCatalog.commit_table) -> None:
    table = lake.table
    commit(table.catalog, table, (), (SetPropertiesUpdate(updates={"owner": "compaction"}),))


@pytest.mark.parametrize("fault", ["conflict", "lost", "late"])
def test_commits_of_others_and_lost_answers_make_no_repeat(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """`late`: a commit without an answer that is made when the next attempt has looked for it already."""
    lake.open().deliver(rows([event(0)]), 0)
    real = HadoopCatalog.commit_table
    before: list[Callable[[], Any]] = []
    calls = 0

    def commit(catalog: HadoopCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            if fault == "conflict":
                _other_commit(lake, real)
                raise CommitFailedException("another was first")
            (before.append if fault == "late" else _now)(lambda: real(catalog, table, requirements, updates))
            raise ConnectionError("no answer")
        for late in before:
            late()
        before.clear()
        return real(catalog, table, requirements, updates)

    monkeypatch.setattr(HadoopCatalog, "commit_table", commit)
    writer = lake.open()
    values = [event(1), event(2)]
    if fault != "conflict":
        with pytest.raises(PipelineError, match="no answer"):
            writer.deliver(rows(values), 1)
    assert writer.deliver(rows(values), 1).rows == 2
    assert lake.ids() == expected(0, 1, 2)
    assert not before


def test_a_batch_that_is_given_up_leaves_what_the_table_lacks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dead letters are written once, and events that the table has by a commit without an answer have none."""
    real = HadoopCatalog.commit_table
    is_made = False

    def commit(catalog: HadoopCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        if is_made:
            real(catalog, table, requirements, updates)
        raise ConnectionError("no answer")

    writer = lake.open()
    writer.deliver(rows([event(0)]), 0)
    monkeypatch.setattr(HadoopCatalog, "commit_table", commit)
    values: list[Any] = [event(1), b"no event"]
    for dead in (1, 0):
        with pytest.raises(PipelineError, match="no answer") as failed:
            writer.deliver(rows(values), 1)
        assert getattr(failed.value, "dead", 0) == dead
    assert len(lake.letters.refused) == 1
    is_made = True
    with pytest.raises(PipelineError, match="no answer"):
        writer.deliver(rows(values), 1)
    assert writer.left(rows(values), 1).parts == []
    assert lake.ids() == expected(0, 1)


def _now(action: Callable[[], Any]) -> None:
    action()


def test_a_version_that_another_process_put_there_first_is_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    real, others = os.link, [None]

    def link(source: Any, target: Any) -> None:
        if others:
            others.pop()
            _other_commit(lake)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    assert lake.open().deliver(rows([event(1)]), 1).rows == 1
    assert lake.table.properties["owner"] == "compaction"
    assert lake.ids() == expected(0, 1)


def test_columns_that_a_table_lacks_are_added_and_old_rows_have_none(lake: Lake) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    wide = Lake(
        lake.root,
        f"{KEYS}, columns: {{status: {{field: attributes.http.status, type: long}}, who: attributes.user, "
        "at: {field: attributes.at, type: timestamptz}, ok: {field: attributes.ok, type: boolean}, "
        "took: {field: attributes.took, type: double}}",
    )
    attributes = [
        {"http": {"status": 404}, "user": "ann", "at": "2026-11-23T07:00:00.5Z", "ok": True, "took": 3},
        {"http.status": "404", "user": {"id": 7}, "at": "soon", "ok": "yes", "took": 10**400},
        {"http": {"status": 1 << 63}, "at": "0001-01-01T00:00:00+23:59"},
        {"at": "9999-12-31T23:59:59-00:01"},
        {"at": "2026-11-23T07:00:00.5"},
    ]
    wide.open().deliver(rows([event(1 + at, attributes=each) for at, each in enumerate(attributes)]), 1)
    found = {row["offset"]: row for row in lake.table.scan().to_arrow().to_pylist()}
    names = ("status", "who", "at", "ok", "took")
    moment = datetime(2026, 11, 23, 7, 0, 0, 500_000, UTC)
    assert [found[1][name] for name in names] == [404, "ann", moment, True, 3.0]
    assert [found[2][name] for name in names] == [None, '{"id":7}', None, None, None]
    assert all(found[at][name] is None for at in (0, 3, 4) for name in names)
    assert found[5]["at"] == moment
    assert json.loads(found[2]["attributes"])["ok"] == "yes"


def test_a_table_that_others_changed_is_written_as_it_is(lake: Lake) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    with lake.table.update_schema() as update:
        update.add_column("team", StringType())
        update.update_column("partition", LongType())
        update.move_first("body")
    with lake.table.update_spec() as spec:
        spec.add_identity("service")
    assert lake.open().deliver(rows([event(1), event(2)]), 1).rows == 2
    assert lake.ids() == expected(0, 1, 2)


def test_any_partitions_that_others_gave_a_table_are_kept(lake: Lake) -> None:
    """Transforms that lose the order of values, a column that no event has, and one that the table has not any more."""
    lake.open().deliver(rows([event(0)]), 0)
    with lake.table.update_schema() as update:
        update.add_column("team", StringType())
    with lake.table.update_spec() as spec:
        spec.remove_field("time_day")
        spec.add_field("event_id", BucketTransform(4), "bucket")
        spec.add_field("body", TruncateTransform(2), "begin")
        spec.add_field("offset", TruncateTransform(10), "tens")
        spec.add_field("observed_time", YearTransform(), "year")
        spec.add_identity("team")
        spec.add_identity("weight")
    events = [event(at, body=f"{'ab'[at % 2]}c {at}") for at in range(1, 40)]
    assert lake.open().deliver(rows(events), 1).rows == 39
    assert lake.ids() == expected(*range(40))
    found = lake.table.scan(row_filter="body like 'ac%'").to_arrow()
    assert sorted(found.column("offset").to_pylist()) == list(range(2, 40, 2))
    assert all(entry.file.record_count for entry in lake.table.scan().plan_files())


def test_a_partition_that_was_dropped_from_an_old_table_is_empty(lake: Lake) -> None:
    """Version 1 of the format keeps its place: the transform `void`."""
    sink = sink_of(KEYS)
    assert isinstance(sink, IcebergSink)
    schema = new_schema(sink)
    HadoopCatalog(lake.root / "lake").create_table(
        "logs.events", schema, partition_spec=new_spec(sink, schema), properties={"format-version": "1"}
    )
    with lake.table.update_spec() as spec:
        spec.remove_field("time_day")
        spec.add_identity("service")
    assert [type(each.transform) for each in lake.table.spec().fields] == [VoidTransform, IdentityTransform]
    assert lake.open().deliver(rows([event(0), event(1, service=None), event(2, service="b")]), 0).rows == 3
    assert lake.ids() == expected(0, 1, 2)
    assert len(list(lake.table.scan().plan_files())) == 3


def test_a_table_that_cannot_take_the_events_is_told_of_before_a_batch(lake: Lake) -> None:
    try_table(sink_of(KEYS), lake.context)
    assert not (lake.root / "lake").exists()
    lake.open().deliver(rows([event(0)]), 0)
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("weight")
        update.add_column("team", StringType())
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("weight", StringType())
    with pytest.raises(PipelineError, match="column weight is string, and the sink would write double"):
        try_table(sink_of(KEYS), lake.context)
    with pytest.raises(PipelineError, match="column weight is string"):
        lake.open().deliver(rows([event(1)]), 1)


def test_a_checkpoint_that_was_put_back_is_told_of(lake: Lake) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    (lake.root / "checkpoint" / "iceberg" / "0.json").unlink()
    with pytest.raises(PipelineError, match="has batch 0 of this sink, which its checkpoint does not know"):
        lake.open().deliver(rows([event(0)]), 0)


def test_a_large_part_is_written_in_pieces(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from logboom.pipeline.sinks.iceberg import writing

    monkeypatch.setattr(writing, "_BUFFER_MAX_BYTES", 1_000)
    assert lake.open().deliver(rows(*([event(10 * part + at) for at in range(10)] for part in range(3))), 0).rows == 30
    assert lake.ids() == expected(*range(30))
    assert len(list(lake.table.scan().plan_files())) == 3


def test_values_longer_than_the_name_of_a_file_are_partitions(lake: Lake) -> None:
    """Such an event was refused by the file system, and all others of its batch with it."""
    own = Lake(lake.root / "own", f"{KEYS}, partition_by: [service]")
    long = ["s" * 3_000, "s" * 2_999 + "t", "ä/" * 400]
    events = [event(number, service=service) for number, service in enumerate([*long, "shop", "shop"])]
    assert own.open().deliver(rows(events), 0).rows == 5
    found = own.table.scan().to_arrow().to_pylist()
    assert {row["event_id"]: row["service"] for row in found} == {
        f"web:0:{number}": service for number, service in enumerate([*long, "shop", "shop"])
    }
    files = [entry.file for entry in own.table.scan().plan_files()]
    assert {file.partition[0] for file in files} == {*long, "shop"}
    assert len({Path(file.file_path).parent for file in files}) == 4


def test_strange_times_and_numbers_are_rows_too(lake: Lake) -> None:
    strange = [
        event(0, time="0001-01-01T00:00:00Z"),
        event(1, time="9999-12-31T23:59:59.999999Z"),
        event(2, time=None, service=None, body="\0\ud83d\ude00"),
        event(3, attributes={"n": 10**300, "deep": {"a": [1, {"b": None}]}}),
    ]
    for unit in ("date", "hour", "service"):
        own = Lake(lake.root / unit, f"{KEYS}, partition_by: [{unit}]")
        assert own.open().deliver(rows(strange), 0).rows == 4
        assert own.ids() == expected(0, 1, 2, 3)


def test_any_reader_finds_the_table_in_its_directory(lake: Lake) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    lake.open().deliver(rows([event(1)]), 1)
    metadata = lake.root / "lake" / "logs" / "events" / "metadata"
    number = (metadata / "version-hint.text").read_text()
    found = StaticTable.from_metadata(str(metadata / f"v{number}.metadata.json"))
    assert found.scan().to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("table: logs.events", "or catalog is needed"),
        ("table: logs.events, path: ./lake, catalog: 'http://h:1'", "or catalog is needed"),
        ("table: events, path: ./lake", "is not NAMESPACE.TABLE"),
        ("table: a/b.c, path: ./lake", "is not NAMESPACE.TABLE"),
        ("table: logs.events, path: 's3://bucket/lake'", "name a REST catalog with catalog"),
        ("table: logs.events, path: 'ftp://bucket/lake'", "is a URL (ftp:)"),
        ("table: logs.events, catalog: 'h:1'", "is not an address such as https://"),
        ("table: logs.events, path: ./lake, warehouse: x", "goes with a REST catalog"),
        ("table: logs.events, path: ./lake, columns: {body: attributes.x}", "is a column of the event"),
        ("table: logs.events, path: ./lake, columns: {x: service}", "is not attributes.NAME"),
        ("table: logs.events, path: ./lake, columns: {a.b: attributes.x}", "it may have no dot"),
        ("table: logs.events, path: ./lake, partition_by: [date, hour]", "has date and hour"),
        (
            "table: logs.events, catalog: 'http://h:1', properties: {s3.secret-access-key: secret-word}",
            "is a credential",
        ),
        ("table: logs.events, catalog: 'http://h:1', token_env: A, credential_env: B", "are two credentials"),
    ],
)
def test_what_is_wrong_with_its_keys_is_told(keys: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(f"type: iceberg, {keys}"), "p.yaml")
    assert words in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_an_error_of_a_catalog_has_no_credential_in_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Catalog:
        raise ConnectionError("the token no-secret is not taken")

    monkeypatch.setattr(delivery_module, "open_catalog", refuse)
    own = Lake(lake.root, "type: iceberg, catalog: 'http://127.0.0.1:1', table: logs.events, token_env: TOKEN")
    for attempt in (lambda: try_table(sink_of(own.keys), own.context), lambda: own.open().deliver(rows([event(0)]), 0)):
        with pytest.raises(PipelineError, match=r"the token \*\*\* is not taken"):
            attempt()


@pytest.mark.parametrize("credential", ["token_env: TOKEN", "credential_env: TOKEN"])
def test_a_catalog_that_takes_a_request_and_says_nothing_is_given_up(
    tmp_path: Path, credential: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is asked for a token first."""
    monkeypatch.setattr(bounded_requests, "_TIMEOUT_S", (0.2, 0.2))
    with Server(Contract()) as server:
        server.faults.always = "hang"
        properties = f"properties: {{oauth2-server-uri: '{server.url}/token'}}"
        keys = f"type: iceberg, catalog: '{server.url}', warehouse: w, table: logs.events, {credential}, {properties}"
        sink = sink_of(keys)
        secrets = {ref.id: "client:secret" for _, ref in sink.secret_refs}
        with pytest.raises(ReadTimeout, match="timed out"):
            catalogs.open_catalog(sink, lambda path: tmp_path / path, secrets)
        assert server.faults.applied["hang"] == 1


@pytest.mark.parametrize("credential", ["token_env: TOKEN", "credential_env: TOKEN"])
@pytest.mark.parametrize("fault", ["trickle", "drip"])
def test_a_catalog_whose_answer_has_no_end_is_given_up(
    tmp_path: Path, fault: Fault, credential: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte comes before each timeout: in the body of the answer, or in its head."""
    monkeypatch.setattr(bounded_requests, "_REQUEST_MAX_S", 0.3)
    with Server(Anything()) as server:
        server.faults.always = fault
        properties = f"properties: {{oauth2-server-uri: '{server.url}/token'}}"
        keys = f"type: iceberg, catalog: '{server.url}', warehouse: w, table: logs.events, {credential}, {properties}"
        sink = sink_of(keys)
        secrets = {ref.id: "client:secret" for _, ref in sink.secret_refs}
        with pytest.raises(ReadTimeout, match="did not end within"):
            catalogs.open_catalog(sink, lambda path: tmp_path / path, secrets)
        assert server.faults.applied[fault] == 1
        own = Lake(tmp_path, keys)
        with pytest.raises(PipelineError, match="did not end within"):
            own.open().deliver(rows([event(0)]), 0)


def test_a_session_whose_requests_are_bounded_reaches_executors() -> None:
    session = Session()
    bounded_requests.bound(session)
    with Server(Anything()) as server:
        assert session.get(server.url).status_code == 200
        copy = pickle.loads(pickle.dumps(session))  # beside a connection that is open
        assert copy.get(server.url).status_code == 200
    with pytest.raises(RequestException):
        copy.get(server.url)
    copy.close()
    session.close()


class Anything(Contract):
    """Takes what it is sent."""

    def handle(self, request: Request) -> Reply:
        return Reply(200, b"{}")
