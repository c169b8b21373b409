"""Watchers of a table, without a broker: none waits for another, and the last state of each key arrives."""

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import WAIT_S

from logboom.table.entry import Change, Entry
from logboom.table.errors import TableError
from logboom.table.position import Position
from logboom.table.watch import Watch, Watches


def at(offset: int) -> Position:
    return Position("id", {0: offset}, {0: 0}, 1_000)


def change(key: bytes, offset: int) -> Change:
    return Change(key, Entry(key, b"%d" % offset, offset, 0, 0), offset, 0)


def watch_of(*first: Entry, prefix: bytes = b"", position: int = 0) -> tuple[Watch, Watches]:
    watches = Watches()
    watch = Watch(prefix, first, at(position), resumed=False, on_close=watches.remove)
    watches.add(watch)
    return watch, watches


def offer(watches: Watches, *keys: bytes, offset: int) -> None:
    changes = {key: change(key, offset + number) for number, key in enumerate(keys)}
    watches.offer(changes, at(offset + len(keys)))


@given(st.lists(st.one_of(st.sampled_from([b"a", b"b", b"c"]), st.none()), max_size=60))
def test_any_pace_gives_the_last_state_of_each_key_in_order(steps: list[bytes | None]) -> None:
    """A key is a record, None a watcher that comes round to one change; the position never promises too much."""
    watch, watches = watch_of()
    last: dict[bytes, int] = {}
    given_: dict[bytes, int] = {}

    def take() -> bool:
        if (found := watch.next(0)) is None:
            return False
        assert found.version is not None
        assert given_.get(found.key, -1) < found.version
        given_[found.key] = found.version
        place = watch.position
        if place is not None:
            promised = Position.parse(place).offsets[0]
            assert all(given_.get(key, -1) >= offset for key, offset in last.items() if offset < promised)
        return True

    for number, key in enumerate(steps):
        if key is None:
            take()
        else:
            last[key] = number
            offer(watches, key, offset=number)
    while take():
        pass
    assert given_ == last
    assert watch.position == str(at(1 + max(last.values()))) if last else watch.position == str(at(0))


def test_a_slow_watcher_gets_the_newest_state_and_keeps_one_for_each_key() -> None:
    watch, watches = watch_of()
    for number in range(1_000):
        offer(watches, b"hot", offset=number)
    found = watch.next(0)
    assert found == change(b"hot", 999)
    assert watch.next(0) is None


def test_a_hot_key_does_not_keep_others_waiting() -> None:
    watch, watches = watch_of()
    seen = Counter[bytes]()
    for number in range(100):
        offer(watches, b"hot", b"other" if number % 10 == 0 else b"hot", offset=2 * number)
        found = watch.next(0)
        assert found is not None
        seen[found.key] += 1
    assert min(seen.values()) >= 9


def test_the_first_state_comes_before_what_changed_meanwhile() -> None:
    entry = Entry(b"k", b"old", 3, 0, 0)
    watch, watches = watch_of(entry, position=4)
    offer(watches, b"k", offset=4)
    assert watch.position is None
    assert [watch.next(0), watch.next(0)] == [Change(b"k", entry, 3, 0), change(b"k", 4)]
    assert watch.position == str(at(5))


def test_prefixes_choose_and_positions_move_on_without_a_change() -> None:
    watch, watches = watch_of(prefix=b"a")
    offer(watches, b"b", b"ab", offset=0)
    offer(watches, b"b", offset=2)
    assert (found := watch.next(0)) is not None
    assert found.key == b"ab"
    assert watch.next(0) is None
    assert watch.position == str(at(3))


def test_a_closed_watch_ends_whoever_waits_and_is_offered_nothing_more() -> None:
    watch, watches = watch_of()
    found: list[Change] = []
    waiting = threading.Thread(target=lambda: found.extend(watch))
    waiting.start()
    offer(watches, b"k", offset=0)
    watch.close()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    assert len(watches) == 0
    assert len(found) <= 1


def test_the_error_of_the_reader_reaches_the_watcher() -> None:
    watch, watches = watch_of()
    watches.end(TableError("the reader failed"))
    with pytest.raises(TableError, match="the reader failed"):
        next(watch)


def test_tasks_of_an_event_loop_watch_too() -> None:
    async def body() -> list[bytes]:
        watch, watches = watch_of()
        keys: list[bytes] = []

        async def follow() -> None:
            async for each in watch:
                keys.append(each.key)
                if len(keys) == 3:
                    await asyncio.to_thread(watch.close)

        task = asyncio.create_task(follow())
        for number, key in enumerate((b"a", b"b", b"c")):
            await asyncio.to_thread(offer, watches, key, offset=number)
        await asyncio.wait_for(task, WAIT_S)
        return keys

    assert asyncio.run(body()) == [b"a", b"b", b"c"]


def test_a_watcher_whose_loop_is_closed_harms_nobody() -> None:
    watch, watches = watch_of()

    async def wait_in_vain() -> None:
        changes = aiter(watch)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(changes), 0.01)

    asyncio.run(wait_in_vain())
    offer(watches, b"k", offset=0)
    assert watch.next(0) == change(b"k", 0)


@pytest.mark.parametrize("text", ["", "1", "2;id;5;0=1-0", "1;id;x;0=1-0", "1;id;5;0=1", "1;id;5;", "1;id;5;0=a-1"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        Position.parse(text)


def test_a_position_is_a_text_and_back() -> None:
    position = Position("m4p6-_", {0: 12, 11: 3}, {0: 4, 11: 0}, 5)
    assert Position.parse(str(position)) == position
