"""The window of message ids, beside a model that remembers everything."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.broker.partition.id_window import IdWindow

IDS = st.sampled_from([b"a", b"b", b"c", b"x" * 40, b"x" * 41, b"x" * 42, b"y" * 5_000])
STEPS = st.lists(st.tuples(st.lists(st.none() | IDS, max_size=6), st.floats(0, 5)), max_size=40)


@given(STEPS, st.sampled_from([1.0, 8.0, 40.0]), st.integers(1, 30))
def test_every_id_of_the_window_is_known_and_none_for_much_longer(
    steps: list[tuple[list[bytes | None], float]], window_s: float, records_max: int
) -> None:
    window = IdWindow(Offset(3), window_s, records_max, 1 << 20)
    written: list[tuple[bytes, int, float]] = []
    offset, now_s = 3, 100.0
    for batch, pause_s in steps:
        for message_id in batch:
            if message_id is not None:
                window.note(message_id, offset, now_s)
                written.append((message_id, offset, now_s))
            offset += 1
        window.extend(Offset(offset), now_s)
        now_s += pause_s
        window.expire(now_s)
        assert window.end == offset
        assert len(window) <= records_max * 9 / 8 + 8
        latest = {message_id: (at, then_s) for message_id, at, then_s in written}
        for message_id, (at, then_s) in latest.items():
            found = window.find(message_id)
            if at < offset - records_max or now_s - then_s > window_s * 9 / 8 + 0.001:
                assert found is None
            elif now_s - then_s <= window_s:
                assert found == at
        last = [message_id for message_id, at, _ in written if at == offset - 1]
        assert window.last_id == (last[0] if last else None)
    assert window.find(b"never") is None


@given(STEPS, st.integers(0, 3_000), st.integers(1, 2_000))
def test_what_is_taken_away_is_the_oldest_and_the_size_is_that_of_the_rest(
    steps: list[tuple[list[bytes | None], float]], wanted_bytes: int, generation_bytes: int
) -> None:
    window = IdWindow(Offset(0), 1_000.0, 1_000, generation_bytes)
    latest, offset, now_s = dict[bytes, int](), 0, 100.0
    for batch, pause_s in steps:
        for message_id in batch:
            if message_id is not None:
                window.note(message_id, offset, now_s)
                latest[message_id] = offset
            offset += 1
        window.extend(Offset(offset), now_s)
        now_s += pause_s
    before, forgotten = len(window), 0
    while window.size_bytes > wanted_bytes:
        forgotten += window.shrink()
    assert len(window) + forgotten == before
    assert window.end == offset
    known = {window.find(message_id): offset for message_id, offset in latest.items()}
    kept = [offset for found, offset in known.items() if found is not None]
    lost = [offset for message_id, offset in latest.items() if window.find(message_id) is None]
    assert not kept or not lost or min(kept) > max(lost)
    while window.shrink():
        pass
    assert (window.size_bytes, len(window), window.shrink()) == (0, 0, 0)
