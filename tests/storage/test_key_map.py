"""The table of keys and the set of offsets, against a dictionary and a set."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.storage.compaction.key_map import KeyMap, OffsetSet


@given(st.lists(st.binary(max_size=3), max_size=300), st.sampled_from([1, 400, 4000, 1 << 20]), st.integers(1, 40))
def test_the_map_knows_the_newest_offset_of_each_key(keys: list[bytes], max_bytes: int, at_once: int) -> None:
    found, expected = KeyMap(max_bytes, Offset(0)), dict[bytes, int]()
    for start in range(0, len(keys), at_once):
        part = keys[start : start + at_once]
        offsets = list(range(start, start + len(part)))
        count, before = found.put(part, offsets)
        superseded = []
        for key, offset in zip(part[:count], offsets, strict=False):
            if key in expected:
                superseded.append(expected[key])
            expected[key] = offset
        assert before == superseded
        if count < len(part):
            assert part[count] not in expected
            assert found.put(part[count:], offsets[count:]) == (0, [])
            break
    assert len(found) == len(expected)
    assert found.known(keys) == [key in expected for key in keys]
    assert found.known([b"none of them"]) == [False]


def test_the_map_takes_as_many_keys_as_its_memory_allows() -> None:
    small, large = KeyMap(1 << 20, Offset(0)), KeyMap(1 << 21, Offset(0))
    counts = []
    for keys in (small, large):
        names, taken = list[bytes](), 0
        while taken == len(names):
            offsets = range(taken, taken + 1000)
            new = [b"key %d" % offset for offset in offsets]
            taken += keys.put(new, offsets)[0]
            names += new
        assert all(keys.known(names[:taken]))
        counts.append(taken)
    # Some 26 bytes a key: 20 for a slot, of which four of five are in use, and a little for the table that grows next.
    assert all(size // 28 < count < size // 25 for size, count in zip((1 << 20, 1 << 21), counts, strict=True))


@pytest.mark.parametrize("key_bytes", [4, 16, 300, 9000])
def test_the_memory_is_bounded_while_the_keys_are_few_too(key_bytes: int) -> None:
    """Each key with an offset, which are objects of their own, and the moment when the tables take over."""
    max_bytes, at_once = 1 << 20, max(1, 2000 // key_bytes)
    tracemalloc.start()
    try:
        keys, offset, most, few = KeyMap(max_bytes, Offset(0)), 1000, 0, 0
        while keys._few is not None:
            few, most = len(keys), max(most, tracemalloc.get_traced_memory()[0])
            names = [(b"%x" % n).rjust(key_bytes, b"-") for n in range(offset, offset + at_once)]
            assert keys.put(names, range(offset, offset + at_once)) == (at_once, [])
            offset += at_once
        del names
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < max_bytes * 3 // 4 + 20_000, "with what was put last"
    assert peak < max_bytes
    assert few > 0.9 * max_bytes * 3 / 4 / (224 + key_bytes) - at_once
    assert all(keys.known([(b"%x" % n).rjust(key_bytes, b"-") for n in range(1000, offset)]))


def test_an_offset_far_above_the_start_has_no_room() -> None:
    start = 1 << 50
    keys = KeyMap(1 << 20, Offset(start))
    last = start + (1 << 32) - 2
    assert keys.put((b"a",), (start,)) == (1, [])
    assert keys.put((b"a", b"a"), (last, last + 1)) == (1, [start])
    assert keys.put((b"b",), (last + 1,)) == (0, [])
    assert keys.put((b"a",), (last,)) == (1, [last])
    assert keys.known((b"a", b"b")) == [True, False]


OFFSETS = st.one_of(st.integers(0, 300), st.integers(65_500, 65_600), st.integers(1 << 40, (1 << 40) + 200_000))


@given(st.sets(OFFSETS), st.lists(st.tuples(OFFSETS, st.integers(1, 140_000))))
def test_the_set_is_a_set(offsets: set[int], ranges: list[tuple[int, int]]) -> None:
    found = OffsetSet()
    found.add(offsets)
    assert all(offset in found for offset in offsets)
    assert not any(offset + 1 in found for offset in offsets if offset + 1 not in offsets)
    for start, length in ranges:
        within = {offset for offset in offsets if start <= offset < start + length}
        assert found.holds(range(start, start + min(length, 300))) == [
            offset in offsets for offset in range(start, start + min(length, 300))
        ]
        assert found.count_in(start, start + length) == len(within)
        assert found.bits_in(start, start + length) == sum(1 << offset - start for offset in within)
