"""The window of latest records: right for every key of the records it says it knows, within its memory."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.broker.partition.conditions import Latest
from logboom.broker.partition.key_window import KeyTable, KeyWindow

KEYS = st.sampled_from([b"", b"a", b"b", b"x" * 32, b"x" * 33, b"y" * 33, b"z" * 5_000])
RECORDS = st.lists(st.tuples(KEYS, st.booleans()), max_size=60)
BATCHES = st.lists(st.lists(st.tuples(st.binary(max_size=3), st.booleans()), max_size=30), max_size=30)


@given(older=RECORDS, newer=RECORDS)
def test_the_latest_record_of_each_key_is_known(
    older: list[tuple[bytes, bool]], newer: list[tuple[bytes, bool]]
) -> None:
    start, expected = 7, dict[bytes, Latest]()
    window, table = KeyWindow(Offset(start + len(older)), 1 << 20), KeyTable()
    for offset, (key, has_value) in enumerate(older + newer, start):
        (table if offset < window.start else window).note(key, offset, has_value)
        expected[key] = Latest(Offset(offset), has_value)
    window.extend(Offset(start + len(older) + len(newer)))
    window.begin_at(Offset(start), table)
    assert (window.start, window.end) == (start, start + len(older) + len(newer))
    for key in (b"", b"a", b"b", b"x" * 32, b"x" * 33, b"y" * 33, b"z" * 5_000, b"none"):
        assert window.latest(key) == expected.get(key)


@settings(deadline=None)
@given(batches=BATCHES, limit_bytes=st.integers(0, 20_000))
def test_what_does_not_fit_is_forgotten_from_the_oldest_on(
    batches: list[list[tuple[bytes, bool]]], limit_bytes: int
) -> None:
    window, written, offset = KeyWindow(Offset(0), limit_bytes), list[tuple[bytes, bool]](), 0
    for batch in batches:
        for key, has_value in batch:
            window.note(key, offset, has_value)
            written.append((key, has_value))
            offset += 1
        window.extend(Offset(offset))
        window.trim()
        assert window.end == offset
        assert window.size_bytes <= limit_bytes or window.size_bytes <= 30 * 200, "only the newest batch is above"
        for at, (key, has_value) in enumerate(written):
            if at >= window.start and key not in {later for later, _ in written[at + 1 :]}:
                assert window.latest(key) == Latest(Offset(at), has_value)
