"""The table of keys and the set of offsets, against a dictionary and a set."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.storage.compaction.key_map import KeyMap, OffsetSet


@given(st.lists(st.binary(max_size=3), max_size=300), st.sampled_from([1, 400, 4000, 1 << 20]))
def test_the_map_knows_the_newest_offset_of_each_key(keys: list[bytes], max_bytes: int) -> None:
    found, expected = KeyMap(max_bytes), dict[bytes, int]()
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
    small, large = KeyMap(1 << 20), KeyMap(1 << 22)
    counts = []
    for keys in (small, large):
        offset = 0
        while keys.put(b"key %d" % offset, Offset(offset)) is not None:
            offset += 1
        assert all(b"key %d" % n in keys for n in range(offset))
        counts.append(offset)
    # 40 bytes a key: 24 for a slot, of which three of four are in use, and a fifth for the table before it grew.
    assert counts == [(1 << 20) // 40, (1 << 22) // 40]


OFFSETS = st.one_of(st.integers(0, 300), st.integers(65_500, 65_600), st.integers(1 << 40, (1 << 40) + 200_000))


@given(st.sets(OFFSETS), st.lists(st.tuples(OFFSETS, st.integers(1, 140_000))))
def test_the_set_is_a_set(offsets: set[int], ranges: list[tuple[int, int]]) -> None:
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    assert all(offset in found for offset in offsets)
    assert not any(offset + 1 in found for offset in offsets if offset + 1 not in offsets)
    for start, length in ranges:
        assert found.any_in(start, start + length) == any(start <= offset < start + length for offset in offsets)
