"""The machinery of sinks by itself: what is a repeat, when something is sent again, how many requests at once."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline_sinks.contracts import webhook
from tests.pipeline_sinks.harness import QUICK, Letters, delivering, edge_batch, event, sink_of
from tests.pipeline_sinks.server import Server
from urllib3.connection import HTTPConnection

from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.sinks.bulk.adaptive_concurrency import AdaptiveConcurrency
from logboom.pipeline.sinks.bulk.requests import RequestSizeLimits, requests_of
from logboom.pipeline.sinks.bulk.sender import Sender, Sent, Settings
from logboom.pipeline.sinks.bulk.target import (
    BulkResponse,
    Encoded,
    GiveUpError,
    Item,
    RefusedWholeError,
    TryAgainError,
)
from logboom.pipeline.sinks.http.client import HttpClient
from logboom.pipeline.sinks.repeats.ranges import Done, done_of


def item(number: int, size: int = 1) -> Item:
    return Item("_p.e/0", number, b"{}", f"web:0:{number}", b"x" * size)


class Scripted:
    """A target that fails with these errors first, and refuses requests that have one of `bad`."""

    def __init__(self, errors: Sequence[Exception] = (), bad: Sequence[int] = ()) -> None:
        self.errors = list(errors)
        self.bad = set(bad)
        self.requests: list[list[int]] = []

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        return Encoded(value)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        self.requests.append([one.offset for one in items])
        if self.errors:
            raise self.errors.pop(0)
        if self.bad.intersection(self.requests[-1]):
            raise RefusedWholeError("bad")
        return BulkResponse()

    def probe(self) -> None:
        """Nothing to ask."""

    def close(self) -> None:
        """Nothing is open."""


def sent_by(
    target: Scripted, items: Sequence[Item], *, retry_for_s: float = 60.0, concurrency: int = 1, events: int = 10
) -> tuple[Sent, dict[int, str], list[float]]:
    """What became of the items, what was refused, and the pauses that were made, in a time of their own."""
    now, pauses, refused = [0.0], list[float](), dict[int, str]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    sender = Sender(
        target,
        Settings(concurrency=concurrency, per_second=None, retry_for_s=retry_for_s, request_max_s=1_000.0),
        lambda one, reason: refused.__setitem__(one.offset, reason),
        now=lambda: now[0],
        pause=pause,
        chance=lambda: 0.5,
    )
    return sender.run(requests_of(items, RequestSizeLimits(events, 1_000_000))), refused, pauses


def test_pauses_double_and_are_a_part_by_chance() -> None:
    target = Scripted([TryAgainError("away")] * 5)
    sent, refused, pauses = sent_by(target, [item(1)])
    assert (sent.count, sent.error, refused) == (1, None, {})
    assert [pause for pause in pauses if pause] == [0.125, 0.25, 0.5, 1.0, 2.0]


def test_what_the_server_asks_to_wait_is_waited() -> None:
    target = Scripted([TryAgainError("busy", pause_s=7.0, is_overload=True)])
    _, _, pauses = sent_by(target, [item(1)])
    assert sum(pauses) == 7.0


def test_trying_again_ends_and_says_why() -> None:
    target = Scripted([TryAgainError("away")] * 1_000)
    sent, _, pauses = sent_by(target, [item(number) for number in range(30)], retry_for_s=30.0)
    assert sent.error is not None
    assert sent.error.startswith("away (tried ")
    assert sum(pauses) <= 30.0
    assert (sent.count, len({tuple(one) for one in target.requests})) == (0, 1)


def test_giving_up_sends_nothing_more() -> None:
    target = Scripted([GiveUpError("401: the credential is not taken")])
    sent, refused, _ = sent_by(target, [item(number) for number in range(100)])
    assert (sent.error, sent.count, refused) == ("401: the credential is not taken", 0, {})
    assert len(target.requests) == 1


def test_a_server_that_refuses_everything_is_no_fault_of_the_events() -> None:
    target = Scripted(bad=range(1_000))
    sent, refused, _ = sent_by(target, [item(number) for number in range(1_000)])
    assert sent.error == "every event is refused, the last with: bad"
    assert len(refused) <= 32
    assert len(target.requests) < 100


@given(st.sets(st.integers(0, 199), max_size=20), st.integers(1, 4))
def test_halving_finds_exactly_what_is_refused(bad: set[int], concurrency: int) -> None:
    sent, refused, _ = sent_by(
        Scripted(bad=sorted(bad)), [item(number) for number in range(200)], concurrency=concurrency
    )
    assert sent.error is None
    assert set(refused) == bad
    assert sorted(sent.taken.get("_p.e/0", [])) == sorted(set(range(200)) - bad)


def test_with_one_request_at_once_nothing_overtakes() -> None:
    target = Scripted([TryAgainError("away")] * 2)
    sent_by(target, [item(number) for number in range(30)])
    assert [request[0] for request in target.requests] == [0, 0, 0, 10, 20]


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 20), st.integers(1, 500))
def test_requests_keep_their_limits_and_the_order(sizes: list[int], events: int, size: int) -> None:
    items = [item(number, length) for number, length in enumerate(sizes)]
    requests = list(requests_of(items, RequestSizeLimits(events, size)))
    assert [one for request in requests for one in request] == items
    for request in requests:
        assert 0 < len(request) <= events
        assert len(request) == 1 or sum(len(one.payload) for one in request) <= size


@given(st.lists(st.lists(st.integers(1, 300), max_size=20), max_size=5), st.integers(1, 20), st.integers(1, 500))
def test_requests_are_the_same_whatever_the_tasks_are(sizes: list[list[int]], events: int, size: int) -> None:
    """A server that knows a request again by its events finds those of an attempt that one task made for all."""
    limits = RequestSizeLimits(events, size)
    partitions = [
        [
            Item(f"_p.e/{index}", number, b"{}", f"web:{index}:{number}", b"x" * length)
            for number, length in enumerate(each)
        ]
        for index, each in enumerate(sizes)
    ]
    apart = [request for items in partitions for request in requests_of(items, limits)]
    assert list(requests_of(chain.from_iterable(partitions), limits)) == apart


def test_the_gate_halves_once_for_requests_that_were_under_way_together() -> None:
    concurrency = AdaptiveConcurrency(8)
    concurrency.begun(0.0)
    concurrency.slowed(0.0, 1.0, 5.0)
    concurrency.slowed(0.5, 1.1, None)
    assert (concurrency.allowed, concurrency.opens_at()) == (4, 6.0)
    concurrency.slowed(6.0, 7.0, None)
    assert concurrency.allowed == 2
    for _ in range(5):
        concurrency.succeeded()
    assert concurrency.allowed == 3


def test_a_rate_spreads_the_beginnings_of_requests() -> None:
    concurrency = AdaptiveConcurrency(8, per_second=4.0)
    concurrency.begun(10.0)
    assert concurrency.opens_at() == 10.25
    concurrency.begun(10.25)
    concurrency.begun(10.25)
    assert concurrency.opens_at() == 10.75


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_ranges_have_what_was_put_in(left: set[int], right: set[int]) -> None:
    done = done_of({"a/0": left}).plus(done_of({"a/0": right, "b/0": right}))
    assert {offset for offset in range(42) if done.has("a/0", offset)} == left | right
    assert {offset for offset in range(42) if done.has("b/0", offset)} == right
    assert not Done().has("a/0", 0)


def test_repeats_of_the_edge_and_what_is_no_event_are_not_sent() -> None:
    with Server(webhook.Webhook()) as server:
        batch = delivering(sink_of(f"{webhook.KEYS.format(url=server.url)}, {QUICK}"), server.contract.secret)
        batch.high_water = {"_p.parsed web 0": 4}
        values: list[Any] = [
            *(event(number) for number in range(10)),
            b"{}",
            b"\xff",
            *(event(number) for number in range(7, 12)),
        ]
        report = batch.attempt([edge_batch(values)])
        assert server.contract.events == {f"web:0:{number}": 1 for number in range(5, 12)}
        assert (report.rows, report.repeats, report.dead) == (7, 8, 2)
        assert [one.is_event for one in batch.letters.refused] == [False, False]
        retried = edge_batch([event(2)], first=50, keys=[b"retry:p.dead.out/0/0"])
        assert batch.attempt([retried]).rows == 1
        assert isinstance(batch.letters, Letters)


def test_a_connection_that_is_ended_between_two_steps_of_a_request_fails_it_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the thread that ends what takes too long: urllib3 then finds no socket, which is no fault of the pipeline."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        client = HttpClient(url, headers={}, ca=None, compression="none", timeout_s=5.0)
        answer = HTTPConnection.getresponse

        def end_and_answer(self: Any) -> Any:
            options = self._response_options  # urllib3 has looked at them already when the other thread closes it
            client.close()
            self._response_options = options
            return answer(self)

        monkeypatch.setattr(HTTPConnection, "getresponse", end_and_answer)
        with pytest.raises(TryAgainError, match="the connection was ended"):
            client.post("/", b"x", "text/plain")
