"""What went through a pipeline, and whether two sinks hold the same: figures from ledgers and from events read back."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchRecord, Ledger
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.drawing.graph import graph_of
from logboom.pipeline.drawing.live import live_picture
from logboom.pipeline.run.comparing import SHOWN_MAX, Span, compare
from logboom.pipeline.run.sink_contents import archived
from logboom.pipeline.run.volume import RouteVolume, ServiceVolume, by_service, volume_of
from logboom.pipeline.sinks.parquet.reading import ArchiveReader
from logboom.pipeline.sinks.read_back import Held

PLAN = compile_pipeline(
    """\
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}], blank_lines: drop, drop: {health: "line = 'ok'"}}
  split: {type: route, inputs: [parsed], routes: {errors: "severity_number >= 17"}}
  sampled: {type: sample, inputs: [split.unmatched], rate: {dial: noise, default: 10}}
sinks:
  errors: {type: stream, inputs: [split.errors, sampled], stream: errors}
""",
    "shop.yaml",
)


def entry(batch: int, at_s: int, **dials: float) -> BatchRecord:
    ledger = Ledger(
        records_in={"web": 100},
        bytes_in=10_000,
        copies=0,
        out={"errors": 20},
        bytes_out=4_000,
        dropped={"parsed": 5, "parsed.health": 15, "sampled": 60},
        dead={},
        masked={},
        out_bytes={"errors": 4_000},
        in_bytes={"web": 10_000},
        routed={"errors": {"split.errors": 15, "sampled": 5}},
        routed_bytes={"errors": {"split.errors": 3_600, "sampled": 400}},
    )
    started = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    values = dict(dials)
    return BatchRecord(
        batch=batch, plan="p", started_at=started, duration_ms=500, ledger=ledger, total=EMPTY, dials=values
    )


def test_volume_counts_the_batches_of_the_time() -> None:
    found = volume_of(PLAN, [entry(1, 100), entry(2, 200), entry(3, 210, noise=50.0)], 200_000)
    assert (found.covered_since_ms, found.seconds, found.ledger.batches) == (200_000, 10.5, 2)
    assert (found.ledger.in_bytes, found.ledger.out_bytes) == ({"web": 20_000}, {"errors": 8_000})
    savings = {one.dial: (one.value, one.events, one.bytes_estimated) for one in found.savings}
    assert savings == {"parsed.health": (True, 30, 6_000), "noise": (50.0, 120, 24_000)}
    assert msgspec.convert(msgspec.to_builtins(found), type=type(found)) == found


def test_volume_by_route_names_the_output_and_where_it_went() -> None:
    """Whether the router writes the sink or a delivery: of the former the ledger says which output events came from."""
    found = volume_of(PLAN, [entry(1, 100), entry(2, 110)], 0)
    assert found.routes == (
        RouteVolume(route="split.errors", sinks=("errors",), events=30, bytes=7_200),
        RouteVolume(route="sampled", sinks=("errors",), events=10, bytes=800),
    )


def test_volume_of_ledgers_of_earlier_versions_says_what_they_do() -> None:
    new, ledger = entry(1, 100), entry(2, 110).ledger
    old = msgspec.structs.replace(new, ledger=msgspec.structs.replace(ledger, routed={}, routed_bytes={}))
    (route,) = volume_of(PLAN, [old], 0).routes
    assert route == RouteVolume(route=None, sinks=("errors",), events=20, bytes=4_000)
    routes = {one.route: one.events for one in volume_of(PLAN, [old, new], 0).routes}
    assert routes == {"split.errors": 15, "sampled": 5, None: 20}


def test_a_time_without_batches_has_no_volume() -> None:
    found = volume_of(PLAN, [entry(1, 100)], 200_000)
    assert (found.covered_since_ms, found.seconds, found.ledger, found.savings) == (None, 0.0, EMPTY, ())


def held(event_id: str, observed_ms: int = 0, late_ms: int | None = 10, service: str = "shop") -> Held:
    return Held(event_id, service, observed_ms, None if late_ms is None else observed_ms + late_ms, 100, 2.0)


def test_services_are_counted_with_what_they_stand_for() -> None:
    found = by_service("out", [held("a"), held("b"), held("c", service="")])
    assert found == [
        ServiceVolume(sink="out", service="shop", events=2, stands_for=4, bytes=200),
        ServiceVolume(sink="out", service="", events=1, stands_for=2, bytes=100),
    ]


def test_a_sink_that_lacks_events_is_told_which() -> None:
    first = [held("a", 1), held("b", 2), held("b", 2), held("young", 100)]
    second = [held("b", 2, None), held("c", 3, None)]
    one, other = compare(("x", "y"), (first, second), Span(0, until_ms=100))
    assert (one.events, one.repeats, one.lacks, one.lacking, one.latency_max_ms) == (2, 1, 1, ("c",), 10)
    assert (other.events, other.repeats, other.lacks, other.lacking, other.latency_max_ms) == (2, 0, 1, ("a",), None)


def test_a_sink_that_is_searched_by_the_times_of_events_is_held_to_those_alone() -> None:
    """What happened before the span and was seen within it, only the other sink finds."""
    early, later = held("early", 60)._replace(time_ms=10), held("later", 61)._replace(time_ms=55)
    stale = held("stale", 40)._replace(time_ms=70)  # seen before the span, by a clock that is behind
    one, other = compare(("stream", "loki"), ([early, later], [later, stale]), Span(50, 100, by_time=True))
    assert (one.events, one.lacks, other.events, other.lacks) == (1, 0, 1, 0)
    one, other = compare(("stream", "search"), ([early, later], [later, stale]), Span(50, 100))
    assert (one.events, one.lacks, other.events, other.lacks) == (2, 0, 1, 1)


def test_an_event_that_is_there_at_another_time_is_not_lacking() -> None:
    """A table that has the times of events alone says of one that was seen at the end of the span that it counts."""
    exact, rounded = held("a", 101)._replace(time_ms=60), held("a", 60)._replace(time_ms=60)
    one, other = compare(("stream", "table"), ([exact], [rounded]), Span(50, 100, by_time=True))
    assert (one.events, one.lacks, other.events, other.lacks) == (0, 0, 1, 0)


def test_few_of_many_ids_are_shown_the_oldest_first() -> None:
    one, _ = compare(("x", "y"), ([], [held(f"e{number}", 1_000 - number) for number in range(500)]), Span(0, 2_000))
    assert (one.lacks, len(one.lacking), one.lacking[0]) == (500, SHOWN_MAX, "e499")


def test_an_archive_is_read_back_without_files_on_their_way(tmp_path: Path) -> None:
    moments = pa.array([1_000_000, 5_000_000], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table(
        {"event_id": ["old", "new"], "service": ["shop", None], "observed_time": moments, "weight": [1.0, 4.0]}
    )
    for part in ("date=2026-11-20/hour=10", "_logboom/staging"):
        (tmp_path / part).mkdir(parents=True)
        pq.write_table(table, tmp_path / part / "part.parquet")
    assert list(archived(ArchiveReader(str(tmp_path)), 2_000)) == [Held("new", "", 5_000, None, None, 4.0)]
    assert list(archived(ArchiveReader(str(tmp_path / "gone")), 0)) == []


def test_what_directories_say_is_read_back_with_the_events(tmp_path: Path) -> None:
    moments = pa.array([1_000_000, 2_000_000, 3_000_000], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"event_id": ["a", "b", "c"], "observed_time": moments, "weight": [1.0, 1.0, 1.0]})
    for part in ("service=a%2Fb%3D1", "service=007", "service=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / part).mkdir()
        pq.write_table(table, tmp_path / part / "part.parquet")
    reader = ArchiveReader(str(tmp_path))
    assert {one.service for one in archived(reader, 0)} == {"a/b=1", "007", ""}
    (file, *_) = reader.files()
    chosen = reader.batches(file, ["event_id", "service"], from_ms=1_500, to_ms=3_000)
    assert [batch.to_pylist() for batch in chosen] == [[{"event_id": "b", "service": "007"}]]
    assert [batch.num_rows for batch in reader.batches(file, ["event_id"], ids=["a", "c"])] == [2]


def test_a_file_is_read_in_parts_that_do_not_grow_with_it(tmp_path: Path) -> None:
    """Of two row groups one has no event of the time that is asked for; the other is larger than what may be held."""
    rows, size_bytes = 60_000, 2_000
    with pq.ParquetWriter(
        tmp_path / "part.parquet",
        pa.schema([("event_id", pa.string()), ("observed_time", pa.timestamp("us", tz="UTC")), ("body", pa.string())]),
    ) as writer:
        for first_us in (0, 1_000_000_000):
            moments = pa.array(range(first_us, first_us + rows), pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            ids = pa.array([f"{first_us}-{row}" for row in range(rows)])
            bodies = pa.repeat(pa.scalar("x" * size_bytes), rows)
            writer.write_table(pa.table([ids, moments, bodies], schema=writer.schema), row_group_size=rows)
    before, most, found = pa.total_allocated_bytes(), 0, 0
    for batch in ArchiveReader(str(tmp_path)).batches("part.parquet", ["body"], from_ms=1_000_000):
        found += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
        assert batch.schema.names == ["body"]
    assert found == rows
    assert most < rows * size_bytes


def test_figures_stand_at_the_nodes_of_the_picture() -> None:
    console = Console(width=200, record=True, color_system=None)
    console.print(live_picture(graph_of(PLAN), {"web": ["7.0 events/s"], "errors": ["2 dead letters"]}, ["errors"]))
    text = console.export_text()
    for word in ("web (stream)", "7.0 events/s", "errors → errors", "→ split", "2 dead letters", "sampled (sample)"):
        assert word in text


def test_a_terminal_that_is_too_narrow_for_boxes_gets_a_list_with_nothing_cut_off() -> None:
    figures = {"web": ["7.0 events/s"], "errors": ["1,234,567.8 events/s", "2 dead letters"]}
    console = Console(width=80, record=True, color_system=None)
    console.print(live_picture(graph_of(PLAN), figures, ["errors"]))
    text = console.export_text()
    for word in ("NODE", "web ", "7.0 events/s", "1,234,567.8 events/s", "→ split", "2 dead letters", "sampled "):
        assert word in text
    assert "…" not in text
    assert "╭" not in text
