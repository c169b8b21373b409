"""The table of keys and the set of offsets, against a dictionary and a set."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.storage.compaction.key_map import KeyMap, OffsetSet


@given(st.lists(st.binary(max_size=3), max_size=300), st.sampled_from([1, 400, 4000, 1 << 20]))
def test_the_map_knows_the_newest_offset_of_each_key(keys: list[bytes], max_bytes: int) -> None:
    found, expected = KeyMap(max_bytes, Offset(0)), dict[bytes, int]()
    for offset, key in enumerate(keys):
        before = found.put(key, Offset(offset))
        if before is None:
            assert key not in expected
            assert found.put(key, Offset(offset)) is None
            continue
        assert before == expected.get(key, -1)
        expected[key] = offset
    assert len(found) == len(expected)
    assert {key for key in keys if key in found} == set(expected)
    assert b"none of them" not in found


def test_the_map_takes_as_many_keys_as_its_memory_allows() -> None:
    small, large = KeyMap(1 << 20, Offset(0)), KeyMap(1 << 22, Offset(0))
    counts = []
    for keys in (small, large):
        offset = 0
        while keys.put(b"key %d" % offset, Offset(offset)) is not None:
            offset += 1
        assert all(b"key %d" % n in keys for n in range(offset))
        counts.append(offset)
    # Some 26 bytes a key: 20 for a slot, of which four of five are in use, and a little for the table that grows next.
    assert all(size // 28 < count < size // 25 for size, count in zip((1 << 20, 1 << 22), counts, strict=True))


def test_an_offset_far_above_the_start_has_no_room() -> None:
    start = Offset(1 << 50)
    keys = KeyMap(1 << 20, start)
    last = Offset(start + (1 << 32) - 2)
    assert keys.put(b"a", start) == -1
    assert keys.put(b"a", last) == start
    assert keys.put(b"a", Offset(last + 1)) is None
    assert keys.put(b"b", Offset(last + 1)) is None
    assert keys.put(b"a", last) == last
    assert b"b" not in keys


OFFSETS = st.one_of(st.integers(0, 300), st.integers(65_500, 65_600), st.integers(1 << 40, (1 << 40) + 200_000))


@given(st.sets(OFFSETS), st.lists(st.tuples(OFFSETS, st.integers(1, 140_000))))
def test_the_set_is_a_set(offsets: set[int], ranges: list[tuple[int, int]]) -> None:
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    assert all(offset in found for offset in offsets)
    assert not any(offset + 1 in found for offset in offsets if offset + 1 not in offsets)
    for start, length in ranges:
        assert found.count_in(start, start + length) == sum(start <= offset < start + length for offset in offsets)
