"""The sink `bigquery` with `delivery: exactly_once`: each row once, whatever is lost, late, cut or killed at which
step, for a server that holds requests to the published contract of the Storage Write API."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline_sinks.committing_process import STEPS, Job, batch_of, deliver, open_writer, router
from tests.pipeline_sinks.contracts import bigquery
from tests.pipeline_sinks.contracts.bigquery import APPEND, COMMIT, CREATE, FINALIZE, GET
from tests.pipeline_sinks.contracts.google_cloud_logging import account
from tests.pipeline_sinks.grpc_server import GrpcFault, GrpcServer
from tests.pipeline_sinks.harness import Rows, edge_batch, event, pipeline_of, sink_of
from tests.pipeline_sinks.server import Server
from tests.pipeline_sinks.test_bigquery import TYPES
from tests.support.waiting import WAIT_S

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.record import read_event
from logboom.pipeline.registry import read_plan
from logboom.pipeline.sinks.base import Delivered, PartlyDeliveredError, SinkWriter
from logboom.pipeline.sinks.bigquery import BigQuerySink
from logboom.pipeline.sinks.bulk.target import GiveUpError, Item, TryAgainError

COUNT = 120
IDS = {f"web:0:{number}" for number in range(COUNT)}
NOT_CARRIED_OUT: tuple[GrpcFault, ...] = ("unavailable", "exhausted", "internal", "garbage")
CARRIED_OUT: tuple[GrpcFault, ...] = ("lost_answer", "stored_internal", "half_stored", "late")
ONCE = Counter(dict.fromkeys(IDS, 1))


@dataclass
class Cloud:
    contract: bigquery.BigQuery
    server: GrpcServer
    tokens: Server
    directory: Path
    name: str = "writer"
    """Of the service account."""

    @property
    def keys(self) -> str:
        return (
            f"type: bigquery, url: '{self.server.url}', project: shop-1234, dataset: logs, table: events, "
            "key_env: KEY, timeout: 1s, batch: {max_events: 20}"
        )

    def writer(self, more: str = ", retry_for: 20s") -> SinkWriter:
        """As a run opens it, also one that begins anew."""
        return open_writer(self.keys + more, account(self.tokens.url, self.name), self.directory)

    @property
    def ids(self) -> Counter[str]:
        """What a query finds."""
        return Counter(row["event_id"] for row in self.contract.rows)

    @property
    def dead(self) -> Counter[str]:
        path = self.directory / "letters"
        return (
            Counter(json.loads(line)["event_id"] for line in path.read_bytes().splitlines())
            if path.exists()
            else Counter()
        )

    def router(self, dies: str | None = None, poison: tuple[int, ...] = ()) -> BaseProcess:
        """One that is yet to start and delivers the batch, with a part for each of two tasks."""
        job = Job(
            keys=f"{self.keys}, retry_for: 20s",
            secret=account(self.tokens.url),
            directory=self.directory,
            dies=dies,
            count=COUNT,
            parts=2,
            poison=poison,
        )
        return router(job)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    contract = bigquery.BigQuery(TYPES)
    with GrpcServer(contract.methods, {APPEND: contract.append}) as server, Server(contract.tokens) as tokens:
        yield Cloud(contract, server, tokens, tmp_path)


def test_rows_are_there_with_the_commit_of_their_batch_and_each_once(cloud: Cloud) -> None:
    writer = cloud.writer()
    seen: list[int] = []
    cloud.server.on_call = lambda method, is_done: seen.append(len(cloud.contract.rows))
    assert deliver(writer, batch_of(COUNT, 3)) == [Delivered("out", 0, rows=COUNT)]
    assert set(seen[:-1]) == {0}
    assert cloud.contract.commits == [3]
    assert cloud.ids == ONCE
    assert not (cloud.directory / "checkpoint" / "commit.json").exists()
    assert cloud.writer().deliver(batch_of(COUNT, 3), 0) == Delivered("out", 0)
    assert cloud.ids == ONCE


PLACE = "type: bigquery, project: shop-1234, dataset: d, table: t, key_env: K"


def test_each_way_has_its_own_batches_and_requests_at_once() -> None:
    sink = sink_of(PLACE)
    assert (sink.is_committed, sink.sending.concurrency, sink.interval_ms) == (True, 1, 10_000)
    assert sink.batch_records_max == 500_000
    at_once = sink_of(f"{PLACE}, delivery: at_least_once")
    assert (at_once.is_committed, at_once.sending.concurrency, at_once.interval_ms) == (False, 4, 2_000)
    assert at_once.batch_records_max == 50_000
    assert sink_of(f"{PLACE}, batch: {{max_age: 3s}}").interval_ms == 3_000


def test_a_plan_of_a_version_without_commits_goes_on_with_the_default_stream() -> None:
    tree = json.loads(compile_pipeline(pipeline_of(PLACE), "p.yaml").to_json())
    (told,) = tree["sinks"]
    assert told.pop("delivery") == "exactly_once"
    sink = read_plan(json.dumps(tree)).sinks[0]
    assert isinstance(sink, BigQuerySink)
    assert not sink.is_committed


@pytest.mark.parametrize("fault", [*NOT_CARRIED_OUT, *CARRIED_OUT])
@pytest.mark.parametrize("method", [CREATE, APPEND, FINALIZE, COMMIT], ids=lambda method: method.rpartition("/")[2])
def test_a_call_that_fails_or_whose_outcome_is_not_told_makes_no_row_come_twice(
    cloud: Cloud, method: str, fault: GrpcFault
) -> None:
    """Tried again by the same attempt."""
    cloud.server.next_of[method] += [fault, fault]
    outcomes = deliver(cloud.writer(), batch_of(COUNT, 2))
    assert cloud.server.applied[fault] == 2
    assert cloud.ids == ONCE
    assert (sum(one.rows for one in outcomes), cloud.dead) == (COUNT, Counter())


@pytest.mark.parametrize("fault", ["unavailable", *CARRIED_OUT])
@pytest.mark.parametrize("is_new", [False, True], ids=["same_process", "new_process"])
@pytest.mark.parametrize("method", [CREATE, APPEND, FINALIZE, COMMIT], ids=lambda method: method.rpartition("/")[2])
def test_an_attempt_that_ends_in_doubt_is_made_good_by_the_next(
    cloud: Cloud, method: str, is_new: bool, fault: GrpcFault
) -> None:
    """Nothing is tried again by the attempt itself; the next one is of the same router, or of one that began anew."""
    cloud.server.next_of[method] += [fault]
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 2)
    with pytest.raises(PartlyDeliveredError) as first:
        writer.deliver(batch, 0)
    rest = deliver(cloud.writer(", retry_for: 0") if is_new else writer, batch)
    assert cloud.ids == ONCE
    assert first.value.rows + sum(one.rows for one in rest) == COUNT
    assert cloud.dead == Counter()


def _killing(cloud: Cloud, method: str, *, is_done: bool, poison: tuple[int, ...]) -> None:
    """Kills a router at its second call of this method (the first where there is one alone)."""
    calls = [0]
    at = 1 if method == COMMIT else 2
    lock = threading.Lock()
    router = cloud.router(poison=poison)

    def on_call(called: str, called_is_done: bool) -> None:
        with lock:
            if called == method and called_is_done == is_done:
                calls[0] += 1
                if calls[0] == at:
                    router.kill()

    cloud.server.on_call = on_call
    with lock:
        router.start()
    _is_killed(router)
    cloud.server.on_call = None


one_worker = pytest.mark.xdist_group("routers of bigquery")
"""Routers that are processes are forked off one process, which takes as long to start as all of them."""


def _is_killed(router: BaseProcess) -> None:
    router.join(WAIT_S)
    assert router.exitcode == -signal.SIGKILL


@one_worker
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("method", [CREATE, APPEND, FINALIZE, COMMIT], ids=lambda method: method.rpartition("/")[2])
def test_a_router_that_is_killed_at_a_call_writes_each_row_once(cloud: Cloud, method: str, is_done: bool) -> None:
    poison = (7, 100)
    _killing(cloud, method, is_done=is_done, poison=poison)
    deliver(cloud.writer(), batch_of(COUNT, 2, poison))
    bad = {f"web:0:{number}" for number in poison}
    assert cloud.ids == Counter(dict.fromkeys(IDS - bad, 1))
    assert set(cloud.dead) == bad


@one_worker
@pytest.mark.parametrize("step", STEPS)
def test_a_router_that_is_killed_between_calls_writes_each_row_once(cloud: Cloud, step: str) -> None:
    router = cloud.router(dies=step)
    router.start()
    _is_killed(router)
    outcomes = deliver(cloud.writer(), batch_of(COUNT, 2))
    assert cloud.ids == ONCE
    assert len(outcomes) == 1


def test_a_server_that_is_killed_and_comes_back_has_each_row_once(cloud: Cloud) -> None:
    killed = threading.Event()

    def restart() -> None:
        cloud.server.stop()
        cloud.server.start()

    def on_call(method: str, is_done: bool) -> None:
        if method == APPEND and is_done and len(cloud.contract.requests) == 3 and not killed.is_set():
            killed.set()
            threading.Thread(target=restart).start()

    cloud.server.on_call = on_call
    outcomes = deliver(cloud.writer(), batch_of(COUNT, 2))
    assert killed.is_set()
    assert cloud.ids == ONCE
    assert sum(one.rows for one in outcomes) == COUNT


def test_rows_that_are_refused_die_alone_and_once(cloud: Cloud) -> None:
    poison = (3, 4, 77)
    cloud.server.next_of[COMMIT] += ["lost_answer"]
    outcomes = deliver(cloud.writer(", retry_for: 0"), batch_of(COUNT, 2, poison))
    bad = {f"web:0:{number}" for number in poison}
    assert cloud.ids == Counter(dict.fromkeys(IDS - bad, 1))
    assert cloud.dead == Counter(bad)
    assert (sum(one.rows for one in outcomes), sum(one.dead for one in outcomes)) == (COUNT - 3, 3)


def test_what_one_task_has_written_is_committed_though_another_fails(cloud: Cloud) -> None:
    """The first part takes three appends; all of the second part fails until the next attempt."""
    cloud.server.on_call = lambda method, is_done: _stop_at(cloud, 4)
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 2)
    with pytest.raises(PartlyDeliveredError) as first:
        writer.deliver(batch, 0)
    cloud.server.on_call = None
    assert first.value.rows == COUNT // 2
    assert cloud.ids == Counter({f"web:0:{number}": 1 for number in range(COUNT // 2)})
    (second,) = deliver(writer, batch)
    assert second.rows == COUNT // 2
    assert cloud.ids == ONCE


def _stop_at(cloud: Cloud, appends: int) -> None:
    """The next append is refused once there were so many."""
    if len(cloud.contract.requests) == appends - 1 and not cloud.server.applied["unavailable"]:
        cloud.server.next_of[APPEND] = ["unavailable"]


def test_a_batch_that_is_given_up_kills_no_row_that_a_commit_without_an_answer_has_brought(cloud: Cloud) -> None:
    cloud.server.next_of[COMMIT] += ["lost_answer"]
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 2)
    with pytest.raises(PartlyDeliveredError):
        writer.deliver(batch, 0)
    assert _left(writer, batch) == 0
    assert cloud.ids == ONCE
    assert writer.deliver(_following(), 1) == Delivered("out", 1, rows=COUNT + 1)


def test_a_batch_that_is_given_up_while_nobody_answers_leaves_all_of_it(cloud: Cloud) -> None:
    cloud.server.next_of[COMMIT] += ["unavailable"] * 3
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 2)
    for _ in range(2):
        with pytest.raises(PartlyDeliveredError, match="UNAVAILABLE"):
            writer.deliver(batch, 0)
    assert _left(writer, batch) == COUNT
    assert writer.deliver(_following(), 1).rows == 1
    assert cloud.ids == {f"web:0:{COUNT}": 1}


def test_a_letter_of_an_attempt_that_failed_is_not_written_again_behind_a_new_start(cloud: Cloud) -> None:
    cloud.server.next_of[COMMIT] += ["unavailable"] * 2
    batch = batch_of(COUNT, 2, [7])
    for _ in range(2):
        with pytest.raises(PartlyDeliveredError):
            cloud.writer(", retry_for: 0").deliver(batch, 0)
    deliver(cloud.writer(), batch)
    assert cloud.ids == Counter(dict.fromkeys(IDS - {"web:0:7"}, 1))
    assert cloud.dead == {"web:0:7": 1}


def _following() -> Any:
    """The batch behind that of the tests, of one event."""
    return Rows([edge_batch([event(COUNT)], first=COUNT)])


def _left(writer: SinkWriter, batch: Any) -> int:
    """How many records die of a batch that is given up."""
    found: Any = writer.left(batch, 0)
    if isinstance(found, Rows):
        return sum(part.num_rows for part in found.parts)
    return len(found.collect())


def test_streams_that_bigquery_forgot_before_they_were_committed_are_written_again(cloud: Cloud) -> None:
    """Refused at the first try, so nothing is in doubt."""

    def forget(method: str, is_done: bool) -> None:
        if method == COMMIT and not is_done:
            cloud.server.on_call = None
            cloud.contract.streams.clear()

    cloud.server.on_call = forget
    writer = cloud.writer()
    batch = batch_of(COUNT, 2)
    with pytest.raises(PartlyDeliveredError, match="does not commit the batch: stream error 3"):
        writer.deliver(batch, 0)
    assert deliver(writer, batch) == [Delivered("out", 0, rows=COUNT)]
    assert cloud.ids == ONCE


@pytest.mark.parametrize("is_made", [False, True])
def test_streams_whose_commit_had_no_answer_and_that_are_forgotten_are_a_persons_to_decide(
    cloud: Cloud, is_made: bool
) -> None:
    cloud.server.next_of[COMMIT] += ["lost_answer" if is_made else "unavailable"]
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 2)
    with pytest.raises(PartlyDeliveredError, match="UNAVAILABLE"):
        writer.deliver(batch, 0)
    cloud.contract.streams.clear()
    for again in (writer, cloud.writer(", retry_for: 0")):
        with pytest.raises(PartlyDeliveredError, match=r"remove .*commit.json to have its 120 rows written again"):
            again.deliver(batch, 0)
    assert len(cloud.contract.rows) == (COUNT if is_made else 0)
    (cloud.directory / "checkpoint" / "commit.json").unlink()
    cloud.writer().deliver(batch, 0)
    assert set(cloud.ids) == IDS
    assert set(cloud.ids.values()) == {2 if is_made else 1}


def test_a_stream_that_cannot_be_committed_any_more_is_written_again(cloud: Cloud) -> None:
    """The commit had no answer and was not made; BigQuery still knows the stream, but has thrown away what it had."""
    cloud.server.next_of[COMMIT] += ["unavailable"]
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 1)
    with pytest.raises(PartlyDeliveredError, match="UNAVAILABLE"):
        writer.deliver(batch, 0)
    for stream in cloud.contract.streams.values():
        stream.is_finalized = False
    with pytest.raises(PartlyDeliveredError, match="does not commit the batch: stream error 5"):
        writer.deliver(batch, 0)
    assert deliver(writer, batch) == [Delivered("out", 0, rows=COUNT)]
    assert cloud.ids == ONCE


def test_a_stream_that_ends_early_kills_no_row(cloud: Cloud) -> None:
    """BigQuery finalizes a stream while it is written: its rows go to another."""

    def end(method: str, is_done: bool) -> None:
        if method == APPEND and is_done and len(cloud.contract.requests) == 2:
            cloud.contract.streams[f"{bigquery.TABLE}/streams/s0"].is_finalized = True

    cloud.server.on_call = end
    outcomes = deliver(cloud.writer(), batch_of(COUNT, 1))
    assert "FAILED_PRECONDITION" in str(outcomes[0].error)
    assert [one.rows for one in outcomes] == [40, 80]
    assert (cloud.ids, cloud.dead) == (ONCE, Counter())


def test_a_stream_that_has_other_rows_than_were_confirmed_is_not_committed(cloud: Cloud) -> None:
    """Rows that nobody asked for at this offset: ALREADY_EXISTS is believed of a request that was sent before alone."""
    sink = sink_of(f"{cloud.keys}, retry_for: 0")
    target = sink.open_target({ref.id: account(cloud.tokens.url) for _, ref in sink.secret_refs})
    first, second = (
        Item("_p.e/0", at, b"", "", target.encode(read_event(json.dumps(event(at)).encode()), b"").payload)
        for at in (0, 1)
    )
    target.send([first])
    stream = cloud.contract.streams[f"{bigquery.TABLE}/streams/s0"]
    stream.rows += stream.rows
    with pytest.raises(GiveUpError, match="other rows than were confirmed"):
        target.send([second])
    with pytest.raises(TryAgainError, match="2 rows in a stream of which 1 were confirmed"):
        target.finish(1)
    target.close()


def test_a_quota_that_is_used_up_loses_nothing_and_is_told(cloud: Cloud) -> None:
    cloud.contract.streams_max = 1
    writer = cloud.writer(", retry_for: 0")
    batch = batch_of(COUNT, 2)
    with pytest.raises(PartlyDeliveredError, match="RESOURCE_EXHAUSTED: Quota exceeded: CreateWriteStream") as first:
        writer.deliver(batch, 0)
    assert first.value.rows == COUNT // 2
    cloud.contract.streams_max = 3
    assert [one.rows for one in deliver(writer, batch)] == [COUNT // 2]
    assert cloud.ids == ONCE


def test_a_credential_that_ends_between_append_and_commit_loses_nothing(cloud: Cloud) -> None:
    old = cloud.contract.tokens.secret

    def expire(method: str, is_done: bool) -> None:
        if method == FINALIZE and is_done:
            cloud.server.on_call = None
            cloud.contract.tokens.secret = "another-token"

    cloud.server.on_call = expire
    outcomes = deliver(cloud.writer(), batch_of(COUNT, 1))
    assert old not in repr(outcomes)
    assert cloud.ids == ONCE


def test_more_streams_than_one_commit_takes_are_committed_in_parts(cloud: Cloud) -> None:
    count = bigquery.COMMIT_STREAMS_MAX + 3
    batch = batch_of(count, count)
    cloud.server.next_of[COMMIT] += ["late", "unavailable"]
    outcomes = deliver(cloud.writer(", retry_for: 0"), batch)
    assert sum(one.rows for one in outcomes) == count
    assert cloud.ids == Counter({f"web:0:{number}": 1 for number in range(count)})
    assert max(cloud.contract.commits) <= bigquery.COMMIT_STREAMS_MAX


def test_requests_beyond_ten_megabytes_are_cut(cloud: Cloud) -> None:
    events = [event(number, body="x" * 3_000_000) for number in range(5)]
    keys = cloud.keys.replace("max_events: 20", "max_bytes: 64MB").replace("timeout: 1s", "timeout: 20s")
    writer = open_writer(keys, account(cloud.tokens.url), cloud.directory)
    assert deliver(writer, Rows([edge_batch(events)])) == [Delivered("out", 0, rows=5)]
    assert cloud.ids == Counter({f"web:0:{number}": 1 for number in range(5)})


def test_a_lookup_finds_a_commit_that_is_there(cloud: Cloud) -> None:
    """GetWriteStream of a stream tells whether it is committed."""
    deliver(cloud.writer(), batch_of(COUNT, 1))
    sink = sink_of(cloud.keys)
    api = sink._api({ref.id: account(cloud.tokens.url) for _, ref in sink.secret_refs})
    assert api.is_committed(f"{bigquery.TABLE}/streams/s0")
    cloud.contract.streams["other"] = bigquery.Stream()
    assert not api.is_committed("other")
    assert cloud.server.next_of[GET] == []
    api.close()
