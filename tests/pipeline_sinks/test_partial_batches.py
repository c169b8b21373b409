"""Attempts that fail behind part of their batch, and a router that ends between two of them: the next one sends the
rest alone, unless what was noted is of another batch, sink or stream, or is damaged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline_sinks.cases import SECRET, Case, mostly
from tests.pipeline_sinks.committing_process import FileOfLetters
from tests.pipeline_sinks.contracts import webhook
from tests.pipeline_sinks.harness import EDGE, event, opened, rows, sink_of
from tests.pipeline_sinks.server import Server

from logboom.pipeline.checkpoint.bucket.objects import StoreError
from logboom.pipeline.checkpoint.checked import write_checked
from logboom.pipeline.sinks.base import Delivered, PartlyDeliveredError, SinkWriter
from logboom.pipeline.sinks.bulk import partial_batch

COUNT = 300
IDS = {f"web:0:{number}" for number in range(COUNT)}
BATCH = rows([event(number) for number in range(150)], [event(number) for number in range(150, COUNT)])
"""Of two tasks with three requests each."""
IN_ORDER = "timeout: 2s, retry_for: 0, concurrency: 1"
HOOK = "type: webhook, url: '{url}/hook', token_env: TOKEN"
SIZE = "batch: {max_events: 50}"


class Shop:
    """One sink with a checkpoint, whose router may begin anew."""

    def __init__(self, directory: Path, server: Server, keys: str, secret: str = webhook.Webhook.secret) -> None:
        self.directory, self.server, self.secret = directory, server, secret
        self.keys = keys.format(url=server.url)
        self.letters = FileOfLetters(directory / "letters")
        self.said: list[str] = []
        self.saves = 0
        self.note = directory / "checkpoint" / "partial.json"

    def start(self, more: str = f"{IN_ORDER}, {SIZE}", **context: Any) -> SinkWriter:
        """A router that begins."""
        sink = sink_of(f"{self.keys}, {more}")
        context = {"secret": self.secret, "notify": self.said.append, "save": self._save, **context}
        return opened(sink, self.directory, self.letters, **context)

    def _save(self) -> None:
        self.saves += 1

    def fail(self, writer: SinkWriter, batch: Any = BATCH, number: int = 0, *, lets: int = 2) -> PartlyDeliveredError:
        """An attempt whose task is let through so many requests."""
        self.server.faults.next = [None] * lets
        self.server.faults.always = "500"
        with pytest.raises(PartlyDeliveredError) as failed:
            writer.deliver(batch, number)
        self.server.faults.next, self.server.faults.always = [], None
        return failed.value

    @property
    def dead(self) -> list[bytes]:
        """The values of dead letters."""
        return self.letters.path.read_bytes().splitlines() if self.letters.path.exists() else []

    @property
    def events(self) -> Counter[str]:
        return self.server.contract.events


@pytest.fixture
def hook(tmp_path: Path) -> Any:
    with Server(webhook.Webhook()) as server:
        yield Shop(tmp_path, server, HOOK)


@mostly
def test_a_router_that_ends_between_two_attempts_sends_only_the_rest(case: Case, tmp_path: Path) -> None:
    with Server(case.contract()) as server:
        shop = Shop(tmp_path, server, case.keys, case.credential(server.url, SECRET))
        first = shop.fail(shop.start(IN_ORDER))
        second = shop.fail(shop.start(IN_ORDER), lets=3)
        assert 0 < first.rows < first.rows + second.rows < COUNT
        last = shop.start(IN_ORDER).deliver(BATCH, 0)
        assert shop.events == dict.fromkeys(IDS, 1)
        assert first.rows + second.rows + last.rows == COUNT
        assert (last.repeats, shop.dead, shop.said) == (0, [], [])
        assert not shop.note.exists()
        assert shop.start(IN_ORDER).deliver(BATCH, 0) == Delivered("out", 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6))
def test_any_order_of_failed_attempts_and_new_starts_sends_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[tuple[int, bool]]
) -> None:
    with Server(webhook.Webhook()) as server:
        shop = Shop(tmp_path_factory.mktemp("shop"), server, HOOK)
        writer = shop.start()
        for lets, begins_anew in attempts:
            if COUNT - sum(shop.events.values()) > 50 * lets:
                shop.fail(writer, lets=lets)
            writer = shop.start() if begins_anew else writer
        writer.deliver(BATCH, 0)
        assert shop.events == dict.fromkeys(IDS, 1)


def test_dead_letters_and_repeats_of_a_failed_attempt_are_not_done_again(hook: Shop) -> None:
    delivered = [event(number) for number in range(10)]
    hook.start().deliver(rows(delivered), 0)
    batch = rows([*delivered, b"no event", *(event(number) for number in range(10, COUNT))])
    failed = hook.fail(hook.start(), batch, 1, lets=2)
    assert (failed.repeats, failed.dead) == (10, 1)
    last = hook.start().deliver(batch, 1)
    assert (last.repeats, last.dead) == (0, 0)
    assert hook.events == dict.fromkeys(IDS, 1)
    assert hook.dead == [b"no event"]


def test_what_is_given_up_behind_a_new_start_is_the_rest_alone(hook: Shop) -> None:
    hook.fail(hook.start(), lets=3)
    writer = hook.start()
    hook.fail(writer, lets=0)
    left = [json.loads(value)["event_id"] for value in _left(writer)]
    assert set(left) == IDS - set(hook.events)
    assert hook.start().deliver(rows([event(COUNT)]), 1).rows == 1
    assert not hook.note.exists(), "it is removed with its batch"


def _left(writer: SinkWriter) -> list[bytes]:
    class Kept:
        """Records of the batch, whose tasks' rows come back as they are."""

        def mapInArrow(self, task: Callable[..., Any], schema: str) -> list[bytes]:  # noqa: N802
            return [value for part in BATCH.parts for one in task(iter([part])) for value in one["value"].to_pylist()]

    kept: Any = Kept()
    left: Any = writer.left(kept, 0)
    assert isinstance(left, list)
    return left


@pytest.mark.parametrize(
    ("more", "context", "number"),
    [
        pytest.param(f"{IN_ORDER}, {SIZE}, headers: {{X-Shop: a}}", {}, 0, id="an edited sink"),
        pytest.param(f"{IN_ORDER}, {SIZE}", {}, 1, id="another batch"),
        pytest.param(f"{IN_ORDER}, {SIZE}", {"streams": {EDGE: "made-again"}}, 0, id="a stream that was made again"),
        pytest.param(f"{IN_ORDER}, {SIZE}", {"streams": {}}, 0, id="a stream that it does not read any more"),
    ],
)
def test_what_was_noted_counts_for_the_same_batch_sink_and_stream_alone(
    hook: Shop, more: str, context: dict[str, Any], number: int
) -> None:
    hook.fail(hook.start())
    before = hook.events.copy()
    hook.start(more, **context).deliver(BATCH, number)
    assert hook.events == Counter(IDS) + before


def test_how_often_and_how_fast_it_sends_may_be_edited_meanwhile(hook: Shop) -> None:
    hook.fail(hook.start())
    edited = "timeout: 3s, retry_for: 20s, batch: {max_events: 7}, attempts: 3"
    hook.start(edited).deliver(BATCH, 0)
    assert hook.events == dict.fromkeys(IDS, 1)


def _torn(note: Path) -> None:
    note.write_bytes(note.read_bytes()[:-30])


def _flipped(note: Path) -> None:
    note.write_bytes(note.read_bytes().replace(b"[0,", b"[1,"))


def _zeroed(note: Path) -> None:
    note.write_bytes(bytes(len(note.read_bytes())))


def _unreadable(note: Path) -> None:
    note.unlink()
    note.mkdir()


@pytest.mark.parametrize("damage", [_torn, _flipped, _zeroed, _unreadable])
def test_a_damaged_note_is_told_and_counts_as_nothing_known(hook: Shop, damage: Callable[[Path], None]) -> None:
    hook.fail(hook.start())
    before = hook.events.copy()
    damage(hook.note)
    hook.start().deliver(BATCH, 0)
    assert hook.events == Counter(IDS) + before
    (line,) = hook.said
    assert line.startswith("the sink out sends the whole batch 0 again, also events that its server already has: ")
    assert str(hook.note) in line


def test_a_batch_without_a_failure_writes_nothing_and_a_failure_without_progress_nothing_more(
    hook: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def counted(path: Path, value: Any) -> None:
        written.append(path)
        write_checked(path, value)

    monkeypatch.setattr(partial_batch, "write_checked", counted)
    writer = hook.start()
    writer.deliver(rows([event(0)]), 0)
    batch = rows([event(number) for number in range(1, COUNT)])
    hook.fail(writer, batch, 1, lets=0)
    assert written == []
    hook.fail(writer, batch, 1)
    for _ in range(3):
        hook.fail(writer, batch, 1, lets=0)
    assert (written, hook.saves) == ([hook.note], 1)
    writer.deliver(batch, 1)
    assert (written, hook.saves) == ([hook.note], 1)


def test_what_cannot_be_noted_is_told_and_counts(hook: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(partial_batch, "write_checked", full)
        writer = hook.start()
        failed = hook.fail(writer)
        assert failed.rows == 100
        assert "the delivered events cannot be recorded in the checkpoint: [Errno 28] No space left" in str(failed)
    assert hook.fail(writer, lets=1).rows == 50
    hook.start().deliver(BATCH, 0)
    assert hook.events == dict.fromkeys(IDS, 1)


def test_a_bucket_that_does_not_take_the_note_costs_no_count(hook: Shop) -> None:
    def away() -> None:
        raise StoreError("s3://logs/x: put bundles/7: no connection")

    failed = hook.fail(hook.start(save=away))
    assert failed.rows == 100
    assert "put bundles/7: no connection" in str(failed)
