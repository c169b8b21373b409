"""Fingerprints that were seen: against a model that remembers every key in a dict, over batches and watermarks."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.dedupe.seen import Keys, Window, repeats
from logboom.pipeline.state.keys import fingerprints

LENGTH = 100
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 600)), max_size=40), min_size=1, max_size=12)


def _keys(rows: Sequence[tuple[int, int]]) -> Keys:
    names = pa.array([str(key) for key, _ in rows], pa.string())
    first, second = fingerprints([names], len(rows))
    return Keys(first, second, np.array([time for _, time in rows], np.int64))


class Model:
    """What a dict makes of it."""

    def __init__(self) -> None:
        self.opened: dict[int, int] = {}

    def repeats(self, rows: Sequence[tuple[int, int]], mark: int | None) -> list[bool]:
        found = []
        for key, time in rows:
            since = self.opened.get(key)
            if since is not None and mark is not None and since <= mark - LENGTH and key not in self.now:
                since = None
            repeat = since is not None and abs(time - since) < LENGTH
            if not repeat:
                self.opened[key] = time if since is None else max(time, since)
                self.now.add(key)
            found.append(repeat)
        return found

    @property
    def now(self) -> set[int]:
        return self._now

    def begin(self) -> None:
        """A new batch: keys that it opens count to its end, however old their times are."""
        self._now: set[int] = set()


@given(BATCHES, st.lists(st.integers(0, 120), min_size=12, max_size=12))
def test_repeats_are_those_of_a_dict(batches: list[list[tuple[int, int]]], steps: list[int]) -> None:
    model, state, mark = Model(), (), None
    for rows, step in zip(batches, steps, strict=False):
        after = step if mark is None else mark + step
        window = Window(LENGTH, 1_000, mark, after)
        model.begin()
        found, _, state, evicted = repeats(state, _keys(rows), window)
        assert (found.tolist(), evicted) == (model.repeats(rows, mark), 0)
        mark = after


def test_a_key_is_opened_again_and_again_and_never_back() -> None:
    rows = [(1, 1_000 * number) for number in range(500)] + [(1, 0), (1, 499_001)]
    found, _, _, _ = repeats((), _keys(rows), Window(LENGTH, 1_000, None, None))
    assert found.tolist() == [False] * 501 + [True]


def test_there_are_few_tables_and_no_more_keys_than_allowed() -> None:
    state: tuple[pa.Table, ...] = ()
    evicted = 0
    for batch in range(100):
        rows = [(batch * 100 + number, batch) for number in range(100)]
        _, _, state, gone = repeats(state, _keys(rows), Window(10_000, 5_000, None, None))
        evicted += gone
        assert len(state) <= 14
        assert sum(table.num_rows for table in state) <= 5_000
    assert evicted == 10_000 - sum(table.num_rows for table in state)
    newest, _, _, _ = repeats(state, _keys([(9_999, 99), (0, 99)]), Window(10_000, 5_000, None, None))
    assert newest.tolist() == [True, False]  # the oldest are forgotten first


def test_tables_whose_keys_are_all_forgotten_leave_and_others_are_not_written_again() -> None:
    many, few = [(number, 0) for number in range(100)], [(number, 500) for number in range(200, 210)]
    _, _, state, _ = repeats((), _keys(many), Window(LENGTH, 1_000, None, None))
    _, _, both, _ = repeats(state, _keys(few), Window(LENGTH, 1_000, 0, 50))
    assert len(both) == 2
    assert both[0] is state[0]
    _, _, left, _ = repeats(both, _keys([]), Window(LENGTH, 1_000, 50, 500))
    assert [table is both[1] for table in left] == [True]


def test_fingerprints_tell_null_from_empty_and_columns_from_each_other() -> None:
    columns = [pa.array(["a", "a", None, "", "ab", "b"]), pa.array(["b", None, "b", "b", "", "a"])]
    first, second = fingerprints(columns, 6)
    assert len(set(first.tolist())) == len(set(second.tolist())) == 6
    again = fingerprints([column.take(pa.array([5, 0])) for column in columns], 2)
    assert again[0].tolist() == [first[5], first[0]]
    many = pa.array(["x"] * 2_000 + ["y"])  # by its dictionary, as one that repeats its values
    assert fingerprints([many], 2_001)[0][0] == fingerprints([pa.array(["x"])], 1)[0][0]
