"""What every sink over HTTP does when its server, the network or a credential fails: nothing is lost, and an event is
there twice only where its answer was lost and the product does not know event ids."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.pipeline_sinks.cases import EXPIRED, SECRET, Case, everywhere, mostly
from tests.pipeline_sinks.harness import QUICK, Delivering, delivering, edge_batch, event, sink_of
from tests.pipeline_sinks.server import IN_DOUBT, NOT_TAKEN, Fault, Server
from tests.support.waiting import WAIT_S, until

COUNT = 400
IDS = {f"web:0:{number}" for number in range(COUNT)}


def cut_up(size: int) -> list[pa.RecordBatch]:
    """All events in batches of this size."""
    starts = range(0, COUNT, size)
    return [edge_batch([event(number) for number in range(start, start + size)], first=start) for start in starts]


BATCHES = cut_up(100)


@pytest.fixture
def server(case: Case) -> Iterator[Server]:
    with Server(case.contract()) as running:
        yield running


@pytest.fixture
def batch(case: Case, server: Server) -> Delivering:
    return delivering(sink_of(f"{case.keys.format(url=server.url)}, {QUICK}"), case.credential(server.url, SECRET))


@everywhere
def test_events_arrive_once_in_full_requests(case: Case, server: Server, batch: Delivering) -> None:
    report = batch.attempt(BATCHES)
    assert report.error is None
    assert server.contract.events == dict.fromkeys(IDS, 1)
    assert (batch.rows, batch.dead) == (COUNT, 0)
    assert len(server.contract.requests) <= 30


@mostly
@pytest.mark.parametrize("fault", [fault for fault in NOT_TAKEN if fault not in ("hang", "page")])
def test_a_server_that_does_not_take_requests_for_a_while_gets_each_event_once(
    case: Case, server: Server, batch: Delivering, fault: Fault
) -> None:
    server.faults.next += [fault] * 6
    batch.until_done(BATCHES)
    assert server.faults.applied[fault] == 6
    assert server.contract.events == dict.fromkeys(IDS, 1)
    assert (batch.rows, batch.letters.refused) == (COUNT, [])


@everywhere
def test_the_page_of_a_proxy_takes_no_events(case: Case, server: Server, batch: Delivering) -> None:
    """But for a webhook, which may be any server."""
    server.faults.next += ["page"] * 3
    batch.until_done(BATCHES)
    assert server.faults.applied["page"] == 3
    taken = set(server.contract.events)
    assert taken < IDS if case.name == "webhook" else taken == IDS
    assert batch.letters.refused == []


@mostly
@pytest.mark.parametrize("fault", IN_DOUBT)
def test_a_request_that_was_taken_without_an_answer_is_repeated_and_no_other(
    case: Case, server: Server, batch: Delivering, fault: Fault
) -> None:
    server.faults.next += [fault]
    batch.until_done(BATCHES)
    assert set(server.contract.events) == IDS
    twice = sum(count - 1 for count in server.contract.events.values())
    assert 0 < twice <= 200 if case.repeats else twice == 0
    assert batch.letters.refused == []


@mostly
@pytest.mark.parametrize("fault", ["late", "stored_500"])
def test_an_attempt_that_ends_in_doubt_is_made_good_by_the_next(case: Case, server: Server, fault: Fault) -> None:
    """The next one sends what has no answer, in the requests in which it was sent: also one that was a part."""
    keys = f"{case.keys.format(url=server.url)}, timeout: 400ms, retry_for: 0, concurrency: 1"
    batch = delivering(sink_of(keys), case.credential(server.url, SECRET))
    server.faults.next += [None, None, fault]
    first = batch.attempt(BATCHES)
    assert first.error is not None
    batch.until_done(BATCHES)
    assert set(server.contract.events) == IDS
    twice = sum(count - 1 for count in server.contract.events.values())
    assert twice <= 100 if case.repeats else twice == 0
    repeats = sum(report.repeats for report in batch.reports)
    assert (batch.rows + repeats, batch.letters.refused) == (COUNT, [])


@mostly
def test_a_batch_that_is_done_again_after_a_kill_repeats_nothing_where_the_product_knows_events(
    case: Case, server: Server
) -> None:
    """No server fails here: a busy machine that takes 400 ms for a request is not to be one that does."""
    sink = sink_of(f"{case.keys.format(url=server.url)}, timeout: 60s")
    delivering(sink, case.credential(server.url, SECRET)).until_done(BATCHES[:2])
    delivering(sink, case.credential(server.url, SECRET)).until_done(BATCHES)
    assert set(server.contract.events) == IDS
    twice = sum(count - 1 for count in server.contract.events.values())
    assert twice == (200 if case.repeats else 0)


@mostly
def test_dead_letters_that_cannot_be_written_make_nothing_that_was_taken_come_twice(
    case: Case, server: Server, batch: Delivering
) -> None:
    events = [event(number, **({"body": "poison"} if number == 7 else {})) for number in range(120)]
    batch.letters.fails = 1
    report = batch.attempt([edge_batch(events)])
    assert report.error is not None
    assert "the dead letters cannot be written: the log is away" in report.error
    batch.until_done([edge_batch(events)])
    assert server.contract.events == {f"web:0:{number}": 1 for number in range(120) if number != 7}
    assert batch.letters.ids() == {"web:0:7": 1}
    assert (batch.rows, batch.dead) == (119, 1)


@mostly
def test_a_connection_that_hangs_is_given_up_in_its_time(case: Case, server: Server, batch: Delivering) -> None:
    server.faults.next += ["hang", "hang"]
    batch.until_done(BATCHES)
    # On a busy machine an answer may be later than the sink waits for it, and what it answers is sent again.
    assert server.contract.events.keys() == IDS


@mostly
def test_a_server_that_stays_away_fails_the_attempt_and_the_next_sends_the_rest_alone(
    case: Case, server: Server
) -> None:
    batch = delivering(
        sink_of(f"{case.keys.format(url=server.url)}, timeout: 400ms, retry_for: 100ms, concurrency: 1"),
        case.credential(server.url, SECRET),
    )
    many = [
        edge_batch([event(number) for number in range(start, start + 20)], first=start) for start in range(0, 400, 20)
    ]
    half = iter(many)

    def cut() -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(half):
            if number == 10:
                server.faults.always = "500"
            yield each

    first = batch.attempt(cut())
    assert first.error is not None
    assert "500" in first.error
    had = set(server.contract.events)
    assert had < IDS
    server.faults.always = None
    second = batch.attempt(many)
    assert second.error is None
    assert server.contract.events == dict.fromkeys(IDS, 1)
    assert first.rows + second.rows == COUNT


@mostly
def test_a_killed_server_that_comes_back_has_everything(case: Case, server: Server, batch: Delivering) -> None:
    kill_at = threading.Event()

    def killed() -> None:
        until(lambda: len(server.contract.requests) >= 2)
        server.kill()
        kill_at.set()
        server.start()

    killer = threading.Thread(target=killed)
    killer.start()

    def slowly() -> Iterator[pa.RecordBatch]:
        for number, each in enumerate(BATCHES):
            if number == 2:
                assert kill_at.wait(WAIT_S)
            yield each

    batch.attempt(slowly())
    killer.join(WAIT_S)
    batch.until_done(BATCHES)
    assert set(server.contract.events) == IDS
    if not case.repeats:
        assert server.contract.events == dict.fromkeys(IDS, 1)
    assert batch.letters.refused == []


@everywhere
def test_an_expired_credential_loses_nothing_and_is_nowhere_to_be_read(
    case: Case, server: Server, batch: Delivering
) -> None:
    batch.secrets = dict.fromkeys(batch.secrets, case.credential(server.url, EXPIRED))
    report = batch.attempt(BATCHES)
    assert report.error is not None
    assert "401" in report.error or "403" in report.error
    assert EXPIRED not in repr(report)
    assert server.contract.events == {}
    batch.secrets = dict.fromkeys(batch.secrets, case.credential(server.url, SECRET))
    batch.until_done(BATCHES)
    assert server.contract.events == dict.fromkeys(IDS, 1)
    assert SECRET not in repr(batch.reports)


@everywhere
def test_only_what_the_product_refuses_dies_with_the_reason_it_gives(
    case: Case, server: Server, batch: Delivering
) -> None:
    bad = {7, 130, 131}
    events = [event(number, **({"body": "poison"} if number in bad else {})) for number in range(200)]
    batch.until_done([edge_batch(events)])
    assert set(server.contract.events) == {f"web:0:{number}" for number in set(range(200)) - bad}
    assert batch.letters.ids() == {f"web:0:{number}": 1 for number in bad}
    assert all(case.poison in one.reason and one.is_event for one in batch.letters.refused)
    assert (batch.rows, batch.dead) == (197, 3)


@everywhere
def test_what_is_too_large_for_one_request_is_cut_and_what_is_too_large_alone_dies(
    case: Case, server: Server, batch: Delivering
) -> None:
    events = [event(number, body="x" * 30_000) for number in range(10)] + [event(10, body="x" * 3_000_000)]
    batch.until_done([edge_batch(events)])
    assert set(server.contract.events) == {f"web:0:{number}" for number in range(10)}
    assert batch.letters.ids() == {"web:0:10": 1}


@mostly
def test_a_storm_of_429_lowers_the_requests_at_once(case: Case, server: Server, batch: Delivering) -> None:
    server.faults.next += ["429"] * 40
    batch.until_done(BATCHES)
    assert server.contract.events == dict.fromkeys(IDS, 1)
    assert server.under_way_max <= 4
