"""The state of a table: records in, changes out, without a broker."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.table.entry import Change, Entry
from logboom.table.view import TableView

KEYS = st.sampled_from([b"a", b"b", b"ab", b"\xff"])
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=2))
RECORDS = st.lists(st.tuples(st.integers(0, 1), KEYS, VALUES, st.integers(0, 5)), max_size=40)
Records = list[tuple[int, bytes, bytes | None, int]]


def read(records: Records, *, compacted: bool = False) -> tuple[TableView, list[Change]]:
    """A view that has read the records, each at the next offset of its partition; with what compaction leaves alone."""
    view, changes, offsets = TableView((0, 1)), list[Change](), [0, 0]
    last = {(partition, key): number for number, (partition, key, _, _) in enumerate(records)}
    for number, (partition, key, value, time_ms) in enumerate(records):
        if not compacted or last[partition, key] == number:
            change = view.apply(partition, offsets[partition], key, value, time_ms, now_s=number)
            changes += [change] if change else []
        offsets[partition] += 1
    for partition in (0, 1):
        view.advance(partition, offsets[partition])
    return view, changes


def state(view: TableView) -> dict[bytes, tuple[Entry, bool]]:
    return {entry.key: (entry, entry.key in view.ambiguous) for entry in view.entries()}


def replay(copy: dict[bytes, tuple[Entry, bool]], changes: list[Change]) -> dict[bytes, tuple[Entry, bool]]:
    """A copy of a table after the changes."""
    copy = dict(copy)
    for change in changes:
        if change.entry is None:
            copy.pop(change.key, None)
        else:
            copy[change.key] = (change.entry, change.ambiguous)
    return copy


@given(RECORDS)
def test_it_holds_the_last_record_of_each_key_of_each_partition(records: Records) -> None:
    view, changes = read(records)
    model: dict[tuple[bytes, int], bytes] = {}
    for partition, key, value, _ in records:
        if value is None:
            model.pop((key, partition), None)
        else:
            model[key, partition] = value
    for key in {key for _, key, _, _ in records}:
        places = {partition: value for (name, partition), value in model.items() if name == key}
        entry = view.get(key)
        assert (entry is None) == (not places)
        if entry is not None:
            assert places[entry.partition] == entry.value
        assert {each.partition: each.value for each in view.rivals(key)} == (places if len(places) > 1 else {})
    assert replay({}, changes) == state(view)


@given(RECORDS)
def test_compaction_changes_nothing(records: Records) -> None:
    assert state(read(records, compacted=True)[0]) == state(read(records)[0])


@given(RECORDS, RECORDS, st.booleans())
def test_changes_since_a_position_lead_to_the_same_state(before: Records, after: Records, compacted: bool) -> None:
    """Whoever knows the state at a position needs nothing else, also from a view that read all of it later."""
    then, _ = read(before)
    now, _ = read(before + after, compacted=compacted)
    assert replay(state(then), list(now.changes_since(then.positions))) == state(now)


@given(RECORDS, RECORDS)
def test_the_difference_leads_from_one_view_to_another(one: Records, other: Records) -> None:
    before, _ = read(one)
    after, _ = read(other)
    assert replay(state(before), list(after.difference(before))) == state(after)


@given(RECORDS, st.integers(0, 20), st.integers(0, 20))
def test_what_the_log_no_longer_has_is_dropped_and_told(records: Records, first: int, second: int) -> None:
    view, _ = read(records)
    before = state(view)
    changes = view.remove_below({0: first, 1: second})
    assert replay(before, changes) == state(view)
    every = [*view.entries(), *(entry for key in view.ambiguous for entry in view.rivals(key))]
    assert all(entry.version >= (first, second)[entry.partition] for entry in every)


def test_the_partitions_may_be_read_in_any_order() -> None:
    """Of an ambiguous key every reader shows the same value: the latest by time."""
    one, other = TableView((0, 1)), TableView((0, 1))
    for view, order in ((one, (0, 1)), (other, (1, 0))):
        for partition in order:
            view.apply(partition, 0, b"k", b"%d" % partition, 10 - partition, 0)
    assert one.get(b"k") == other.get(b"k")
    assert (found := one.get(b"k")) is not None
    assert found.value == b"0"


def test_an_empty_value_is_a_value_and_a_tombstone_is_none() -> None:
    view = TableView((0,))
    assert view.apply(0, 0, b"k", b"", 0, 0) == Change(b"k", Entry(b"k", b"", 0, 0, 0), 0, 0)
    assert view.apply(0, 1, b"k", None, 0, 0) == Change(b"k", None, 1, 0)
    assert view.apply(0, 2, b"k", None, 0, 0) is None, "a second deletion changes nothing"
    assert view.positions == {0: 3}


def test_records_that_were_read_or_have_no_key_change_nothing() -> None:
    view = TableView((0,))
    view.apply(0, 5, b"k", b"new", 0, 0)
    assert view.apply(0, 4, b"k", b"old", 0, 0) is None
    assert view.apply(0, 6, None, b"v", 0, 0) is None
    assert (view.positions, len(view)) == ({0: 7}, 1)


def test_deletions_are_forgotten_in_time() -> None:
    view = TableView((0,))
    for offset, (key, moment) in enumerate([(b"a", 1), (b"b", 2), (b"a", 3)]):
        view.apply(0, offset, key, None, 0, now_s=moment)
    view.forget_deletions(seen_before_s=3)
    assert [change.key for change in view.changes_since({})] == [b"a"]


def test_only_selected_keys_are_kept() -> None:
    view = TableView((0,), lambda key: key.startswith(b"a"))
    view.apply(0, 0, b"ab", b"1", 0, 0)
    view.apply(0, 1, b"ba", b"1", 0, 0)
    assert [entry.key for entry in view.entries()] == [b"ab"]
    assert view.positions == {0: 2}
