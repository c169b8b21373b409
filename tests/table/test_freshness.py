"""Whether a deletion can have been missed: a model of a log whose tombstones go as early as they may."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.table.freshness import Freshness
from logboom.table.view import TableView

RETENTION_S = 10.0
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from([b"a", b"b"])),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.just("ask"), st.just(0)),
    ),
    max_size=60,
)


class Log:
    """A compacted log with the most eager cleaner that keeps the promise about tombstones."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[bytes, bool, float]] = {}
        self.end = 0

    def append(self, key: bytes, now_s: float, *, deletes: bool) -> None:
        for offset in [offset for offset, record in self.records.items() if record[0] == key]:
            del self.records[offset]
        self.records[self.end] = (key, deletes, now_s)
        self.end += 1

    def clean(self, now_s: float) -> None:
        for offset, (_, deletes, appended_s) in list(self.records.items()):
            if deletes and now_s > appended_s + RETENTION_S:
                del self.records[offset]

    def keys(self) -> set[bytes]:
        return {key for key, deletes, _ in self.records.values() if not deletes}


@given(STEPS)
def test_a_reader_that_is_certain_holds_no_deleted_key(steps: list[tuple[str, int | bytes]]) -> None:
    log, view, now_s = Log(), TableView((0,)), 0.0
    freshness = Freshness((0,), now_s)
    certain = True
    for what, argument in steps:
        if what == "wait":
            now_s += float(argument)
            log.clean(now_s)
        elif what == "ask":
            freshness.expect({0: log.end}, now_s)
        elif what == "read":
            assert isinstance(argument, int)
            for offset in [each for each in sorted(log.records) if each >= view.positions[0]][:argument]:
                key, deletes, _ = log.records[offset]
                view.apply(0, offset, key, None if deletes else b"v", 0, now_s)
            if not [offset for offset in log.records if offset >= view.positions[0]]:
                view.advance(0, log.end)
        else:
            assert isinstance(argument, bytes)
            log.append(argument, now_s, deletes=what == "delete")
        certain = freshness.reached(view.positions, now_s, RETENTION_S) and certain
    if certain and view.positions[0] == log.end and now_s - freshness.known_at_s <= RETENTION_S:
        assert {entry.key for entry in view.entries()} == log.keys()


def test_a_silent_stream_that_is_asked_for_stays_certain() -> None:
    freshness = Freshness((0, 1), 0)
    for moment_s in range(0, 1000, 9):
        freshness.expect({0: 7, 1: 0}, moment_s)
        assert freshness.reached({0: 7, 1: 0}, moment_s, RETENTION_S)
    assert freshness.known_at_s == 999


def test_an_end_that_is_reached_too_late_is_told_once() -> None:
    freshness = Freshness((0,), 0)
    freshness.expect({0: 7}, 5)
    assert freshness.reached({0: 6}, 11, RETENTION_S)
    assert not freshness.reached({0: 7}, 11, RETENTION_S)
    assert freshness.reached({0: 7}, 12, RETENTION_S)


def test_partitions_that_are_added_begin_when_they_are_read() -> None:
    freshness = Freshness((0,), 0)
    freshness.expect({0: 0}, 20)
    freshness.reached({0: 0}, 20, 100)
    freshness.add_partitions((1,), 15)
    assert freshness.known_at_s == 15
