"""Where a replay reads from: the log, an archive, or both with a seam between them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from logboom.pipeline.checkpoint.ledger import EMPTY
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.run.archive_loader import seam_of
from logboom.pipeline.run.archive_slices import Origin
from logboom.pipeline.run.held_offsets import HeldOffsets
from logboom.pipeline.run.replay import LogStart, Replay, archive_of, parts_of, replay_plan
from logboom.pipeline.run.replay_choice import ArchiveState, Choice, HeldPart, Incomplete, LogPart, choose
from logboom.pipeline.run.replay_origin import lost_max, why_unfit

FROM_MS = 1_000_000
WHOLE = LogPart(start=0, since=40, until=100, is_cut=False)
CUT = LogPart(start=50, since=50, until=100, is_cut=True)
FIRST, SECOND = Origin("web", 0), Origin("web", 1)
HELD = HeldPart(first_ms=FROM_MS - 1, first=7, last=98, older=20)


def archive(held: Mapping[Origin, HeldPart], name: str = "archive") -> ArchiveState:
    return ArchiveState(name=name, held=held)


def lines(found: Choice | Incomplete) -> str:
    assert isinstance(found, Incomplete), found
    return "; ".join(found.lines)


def test_a_log_that_has_all_is_read_alone() -> None:
    found = choose(FROM_MS, {FIRST: WHOLE, SECOND: WHOLE}, [archive({FIRST: HELD})])
    assert found == Choice(source="log", why="it has all of that time")


def test_what_the_log_has_deleted_comes_from_the_archive_up_to_the_log() -> None:
    found = choose(FROM_MS, {FIRST: CUT, SECOND: WHOLE}, [archive({FIRST: HELD})])
    assert isinstance(found, Choice)
    assert (found.source, found.archive, found.seam) == ("both", "archive", {FIRST: 50})
    assert found.why == ("the log has deleted older records of web, and archive has 20 events of that time before it")


def test_an_archive_that_has_nothing_of_the_time_before_the_log_is_not_read() -> None:
    found = choose(FROM_MS, {FIRST: CUT}, [archive({FIRST: replace(HELD, older=0)})])
    assert isinstance(found, Choice)
    assert found.source == "log"
    assert "the archive archive has none of that time" in found.why


@pytest.mark.parametrize(
    ("held", "gap"),
    [
        ({}, "all of web/0 before offset 50"),
        ({FIRST: replace(HELD, first_ms=FROM_MS + 1_000)}, "web/0 before 1970-01-01T00:16:41Z"),
        ({FIRST: replace(HELD, last=40)}, "web/0 from offset 41 to 49"),
    ],
)
def test_what_neither_has_is_told(held: Mapping[Origin, HeldPart], gap: str) -> None:
    found = choose(FROM_MS, {FIRST: CUT}, [archive(held)])
    assert f"the archive archive may lack {gap}" in lines(found)
    partial = choose(FROM_MS, {FIRST: CUT}, [archive(held)], partial=True)
    assert isinstance(partial, Choice)
    assert partial.source == ("both" if held else "log")


def test_an_archive_that_begins_with_the_stream_reaches_back_far_enough() -> None:
    found = choose(FROM_MS, {FIRST: CUT}, [archive({FIRST: replace(HELD, first=0, first_ms=FROM_MS + 9)})])
    assert isinstance(found, Choice)
    assert found.source == "both"


def test_an_archive_that_reaches_the_log_needs_no_more() -> None:
    """Its last event is the one in front of the log's first."""
    found = choose(FROM_MS, {FIRST: CUT}, [archive({FIRST: replace(HELD, last=49)})])
    assert isinstance(found, Choice)
    assert found.source == "both"


def test_the_next_archive_is_asked_where_one_has_a_gap() -> None:
    short = archive({FIRST: replace(HELD, last=10)}, "short")
    found = choose(FROM_MS, {FIRST: CUT}, [short, archive({FIRST: HELD}, "long")])
    assert isinstance(found, Choice)
    assert found.archive == "long"
    unfit = ArchiveState(name="other", unfit="it is the sink that gets the events")
    told = lines(choose(FROM_MS, {FIRST: CUT}, [short, unfit]))
    assert "the archive other cannot be used instead: it is the sink that gets the events" in told
    most = choose(FROM_MS, {FIRST: CUT}, [archive({}, "none"), short, unfit], partial=True)
    assert isinstance(most, Choice)
    assert most.archive == "short"


def test_a_transform_that_remembers_takes_all_from_the_archive() -> None:
    """And only where that has all of it, to the end and of all partitions."""
    log = {FIRST: CUT, SECOND: WHOLE}
    full = replace(HELD, last=99)
    found = choose(FROM_MS, log, [archive({FIRST: full, SECOND: full})], "once")
    assert isinstance(found, Choice)
    assert (found.source, found.archive, found.seam) == ("archive", "archive", None)
    assert "once would lose its state between archive and log" in found.why
    told = lines(choose(FROM_MS, log, [archive({FIRST: HELD})], "once"))
    assert "web/0 from offset 99 to 99, all of web/1 before offset 100" in told
    partial = choose(FROM_MS, log, [archive({FIRST: HELD})], "once", partial=True)
    assert isinstance(partial, Choice)
    assert partial.source == "log", "a state that begins anew in the middle would be no replay"


def seen(*ranges: range) -> HeldOffsets:
    found = HeldOffsets()
    for one in ranges:
        found.add(np.array(one, np.int64))
    return found


HOLED = replace(HELD, offsets=seen(range(7, 20), range(22, 30), range(45, 99)), before=9)


def test_an_archive_that_lacks_more_than_was_dropped_is_not_believed() -> None:
    """Whatever is missing may be what was dropped on the way, up to so many; None where nobody has counted."""

    def chosen(lost_max: int | None, held: HeldPart = HOLED) -> Choice | Incomplete:
        return choose(FROM_MS, {FIRST: CUT}, [replace(archive({FIRST: held}), lost_max=lost_max)])

    gap = "the archive archive may lack web/0 from offset 30 to 44 and 2 more between"
    assert gap in lines(chosen(0))
    assert gap in lines(chosen(16))
    for enough in (17, None):
        assert isinstance(chosen(enough), Choice)
    early, late = replace(HOLED, before=43), replace(HOLED, after=21)
    assert isinstance(chosen(1, early), Choice), "what was seen before that time is not looked at"
    assert "web/0 from offset 20 to 20" in lines(chosen(0, late))


def test_holes_of_all_partitions_count_together() -> None:
    log = {FIRST: CUT, SECOND: CUT}
    one = replace(HELD, first=0, before=None, offsets=seen(range(10), range(20, 99)))
    found = choose(FROM_MS, log, [replace(archive({FIRST: one, SECOND: one}), lost_max=15)])
    assert "web/0 from offset 10 to 19, web/1 from offset 10 to 19" in lines(found)
    assert isinstance(choose(FROM_MS, log, [replace(archive({FIRST: one, SECOND: one}), lost_max=20)]), Choice)


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 9_000), st.booleans()), max_size=12),
    st.integers(0, 30_000),
    st.integers(1, 30_000),
)
def test_what_is_missing_of_offsets_is_what_was_not_added(
    ranges: list[tuple[int, int, bool]], first: int, length: int
) -> None:
    found, other, there = HeldOffsets(), HeldOffsets(), np.zeros(80_000, np.bool_)
    for begin, count, mine in ranges:
        (found if mine else other).add(np.arange(begin + count - 1, begin - 1, -1))
        there[begin : begin + count] = True
    found.update(other)
    absent = "".join("x" if is_there else "-" for is_there in there[first : first + length])
    missing = found.missing(first, first + length)
    if "-" not in absent:
        assert missing is None
        return
    longest = max(absent.split("x"), key=len)
    begin = first + absent.index(longest)
    assert missing == (absent.count("-"), begin, begin + len(longest))


@pytest.mark.parametrize(
    ("at", "most"), [("parsed", 3), ("kept", 3 + 40), ("split.errors", 200 - 62 - 5)], ids=["parse", "filter", "route"]
)
def test_what_was_dropped_on_the_way_is_known_and_behind_a_route_what_went_elsewhere(at: str, most: int | None) -> None:
    counted = replace_struct(
        EMPTY,
        records_in={"web": 200},
        dropped={"parsed": 1, "kept": 40, "split.unmatched": 90, "split.errors": 5},
        dead={"parsed": 2, "errors": 7},
        out={"split.errors": 60},
        routed={"stream": {"split.errors": 62}},
    )
    assert lost_max(PLAN, at, counted) == most
    assert lost_max(PLAN, at, None) is None


def test_behind_a_route_nothing_is_known_where_a_record_may_be_at_the_output_twice() -> None:
    again = "{type: mask, inputs: [split.errors, split.unmatched], rules: [{kind: email, action: redact}]}"
    plan = compile_pipeline(FILE.replace("sinks:\n", f"  again: {again}\nsinks:\n"), "shop.yaml")
    counted = replace_struct(EMPTY, records_in={"web": 200}, out={"again": 60})
    assert lost_max(plan, "again", counted) is None
    assert lost_max(plan, "split.errors", counted) == 200


FILE = """\
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  kept: {type: filter, inputs: [parsed], condition: "severity_number > 4"}
  split: {type: route, inputs: [kept], routes: {errors: "severity_number >= 17"}}
sinks:
  errors: {type: stream, inputs: [split.errors], stream: errors}
  all: {type: stream, inputs: [parsed], stream: all}
  archive: {type: parquet, inputs: [kept], path: ./archive}
  two: {type: parquet, inputs: [split.errors, split.unmatched], path: ./two}
"""
PLAN = compile_pipeline(FILE, "shop.yaml")


@pytest.mark.parametrize(
    ("archive_name", "asked", "why"),
    [
        ("archive", {"sink": "errors"}, None),
        ("archive", {"sink": "all"}, "events come to parsed that do not come through kept"),
        ("archive", {"sink": "archive"}, "it is the sink that gets the events"),
        ("archive", {"sink": None}, "events come to parsed that do not come through kept"),
        ("archive", {"sink": "all", "route": "split.errors"}, None),
        ("two", {"sink": "errors"}, "it has events of split.errors, split.unmatched, and does not store which event"),
    ],
)
def test_an_archive_stands_in_where_all_that_is_sent_came_through_it(
    archive_name: str, asked: dict[str, str | None], why: str | None
) -> None:
    replay = Replay(name="r1", from_ms=1, to_ms=2, **{"sink": None, **asked})  # type: ignore[arg-type]
    (sink,) = (one for one in PLAN.sinks if one.name == archive_name)
    found = why_unfit(PLAN, replay_plan(PLAN, replay), replay, sink)  # type: ignore[arg-type]
    assert found == why if why is None else str(found).startswith(why)


def test_a_seam_moves_where_the_log_began_later_than_it_was_chosen(tmp_path: Path) -> None:
    """As Spark wrote down where the part from the log began."""
    replay = Replay(name="r1", sink="errors", from_ms=1, to_ms=2, seam=(LogStart("web", 0, 50), LogStart("web", 1, 30)))
    assert seam_of(replay, tmp_path) == {FIRST: 50, SECOND: 30}, "before its first look"
    (tmp_path / "sources/web").mkdir(parents=True)
    (tmp_path / "sources/web/0").write_bytes(b'\0v1\n{"web":{"0":70,"1":30,"2":9}}')
    assert seam_of(replay, tmp_path) == {FIRST: 70, SECOND: 30}
    assert seam_of(Replay(name="r1", sink="errors", from_ms=1, to_ms=2), tmp_path) is None


def test_parts_of_one_replay_do_not_share_what_they_keep() -> None:
    seam = (LogStart("web", 0, 50),)
    replay = Replay(
        name="r1", sink="errors", from_ms=1, to_ms=2, archive=archive_of(PLAN, "archive", PLAN, None), seam=seam
    )
    log, older = (replay_plan(PLAN, part) for part in parts_of(replay))
    assert (log.name, older.name) == ("shop.replay.r1-log", "shop.replay.r1")
    assert (log.checkpoint, older.checkpoint) == ("checkpoints/shop/replays/r1/log", "checkpoints/shop/replays/r1")
    assert [source.streams for source in (*log.sources, *older.sources)] == [("web",), ("_shop.replay.r1.-archived",)]
