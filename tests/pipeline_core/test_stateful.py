"""State across batches: whatever is done again comes out the same, and what a crash leaves is never believed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.checkpoint.ledger import ledger_of
from logboom.pipeline.checkpoint.states import KEPT_MEMORIES, StateStore
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.schema import HEADERS
from logboom.pipeline.execute import local
from logboom.pipeline.execute.exchange import PartReport, ShardReport
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.execute.stages import IN, PLACE
from logboom.pipeline.execute.stateful import ShardTask, run_shards
from logboom.pipeline.plan.layout import KernelPass, Layer, Layout, StatefulStep
from logboom.pipeline.route.rows import AT
from logboom.pipeline.run.carry_over import lost_state

ONCE = """
name: shop
sources:
  web: {type: stream, stream: web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  errors: {type: route, inputs: [parsed], routes: {bad: "severity_number >= 17"}}
  once: {type: dedupe, inputs: [errors.unmatched], by: [attributes.id], window: 1h}
  small: {type: filter, inputs: [once], condition: "attributes.id < 4"}
  twice: {type: dedupe, inputs: [small, errors.bad], by: [body], window: 1h}
sinks:
  all: {type: console, inputs: [once]}
  few: {type: console, inputs: [twice]}
"""


def layout_of(text: str = ONCE) -> Layout:
    return Layout(compile_pipeline(text, "shop.yaml"))


def records(lines: Sequence[str], first: int) -> pa.RecordBatch:
    """Lines of one partition."""
    count = len(lines)
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array(["web"] * count, pa.string()),
            "stream": pa.array(["web"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([line.encode() for line in lines], pa.binary()),
            "headers": pa.nulls(count, HEADERS),
        }
    )


@dataclass
class Pipeline:
    """Batches of a layout in this process, with a checkpoint."""

    layout: Layout
    directory: Path
    batch: int = 0
    offset: int = 0
    store: StateStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = StateStore(self.directory)

    def run(self, lines: Sequence[str], *, crashes: int = 0) -> list[tuple[str, int]]:
        """One batch, done `crashes` times without being kept: where each record ended, with its offset."""
        found = []
        for attempt in range(crashes + 1):
            store = StateStore(self.directory)  # a new process
            stateful = store.begin(self.layout, self.batch, 1_700_000_000_000 + self.batch)
            assert stateful is not None
            stateful.keeps_dropped = True
            with LazyCatalyst() as spark:
                flow = LocalFlow(self.layout, {}, spark)
                rows = flow.rows(records(lines, self.offset), stateful)
            found.append(self._ends(rows))
            assert found[-1] == found[0], "a batch that is done again comes out the same"
            if attempt == crashes:
                store.keep(stateful)
        self.offset += len(lines)
        self.batch += 1
        return found[0]

    def _ends(self, rows: pa.RecordBatch) -> list[tuple[str, int]]:
        places = {place.code: place for place in self.layout.places}
        ends = ((places[row[AT]], row["offset"]) for row in rows.select([AT, "offset"]).to_pylist())
        return [(place.edge or f"{place.kind}:{place.node}", offset) for place, offset in ends]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(layout_of(), tmp_path)


def line(number: int, text: str = "x", level: str = "info") -> str:
    return json.dumps({"id": number, "msg": text, "level": level})


def test_a_batch_knows_what_earlier_ones_have_seen(pipeline: Pipeline) -> None:
    first = [("dropped:once", 2), ("dropped:small", 0), ("dropped:small", 1), ("once", 0), ("once", 1)]
    assert sorted(pipeline.run([line(9), line(8), line(9)])) == first
    assert sorted(pipeline.run([line(8), line(7)])) == [("dropped:once", 3), ("dropped:small", 4), ("once", 4)]


def test_a_transform_waits_for_all_that_leads_to_it() -> None:
    steps = [step for step in layout_of().steps if isinstance(step, StatefulStep)]
    assert [[node.transform.name for node in step.nodes] for step in steps] == [["once"], ["twice"]]
    assert [type(step) for step in layout_of().steps] == [KernelPass, Layer, StatefulStep, Layer, StatefulStep]


def test_shards_are_asked_in_the_order_of_origins_however_tasks_are_numbered(tmp_path: Path) -> None:
    layout = layout_of()
    step = next(step for step in layout.steps if isinstance(step, StatefulStep))
    stateful = StateStore(tmp_path).begin(layout, 0, 1_700_000_000_000)
    assert stateful is not None
    firsts = [("web", 1, 7), ("web", 0, 900), None]
    reports = [PartReport(part, "t", {}, {"once": {}}, {}, None, first) for part, first in enumerate(firsts)]
    (task,) = stateful.shard_tasks(step, [msgspec.json.encode(report) for report in reports], 1)
    assert [report.part for report in task.parts] == [2, 1, 0]


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 16, 40])
def test_rows_of_shards_come_to_the_next_step_in_one_order_however_many_tasks_there_are(
    tmp_path: Path, tasks: int
) -> None:
    layout = layout_of()
    step = next(step for step in layout.steps if isinstance(step, StatefulStep))
    stateful = StateStore(tmp_path).begin(layout, 0, 1_700_000_000_000)
    assert stateful is not None
    stateful.shard_tasks(step, [], 1)
    made = {shard: int(shard % 5 != 0) for shard in range(16)}
    reports = [
        ShardReport("once", shard, "t", [], 0, 0, rows, rows, None, 1 if rows else None, {}, {})
        for shard, rows in made.items()
    ]
    resumed = stateful.resumed_tasks(step, [], [msgspec.json.encode(reports[::-1])], tasks)
    assert len(resumed) <= tasks
    found = [[report.shard for report in task.shards] for task in resumed]
    assert [shard for shards in found for shard in shards] == [shard for shard, rows in made.items() if rows]
    assert all(found)


LINES = st.lists(st.builds(line, st.integers(0, 6), st.sampled_from("xyz"), st.sampled_from(["info", "error"])))


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(LINES, st.integers(0, 1)), min_size=1, max_size=4))
def test_batches_that_are_done_again_come_out_as_one_long_one(batches: list[tuple[list[str], int]]) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as many:
        cut, whole = Pipeline(layout_of(), Path(many)), Pipeline(layout_of(), Path(one))
        found = [end for lines, crashes in batches for end in cut.run(lines, crashes=crashes)]
        together = whole.run([each for lines, _ in batches for each in lines])
        assert sorted(found) == sorted(together)


@pytest.mark.parametrize("what", ["*.rows", "*.asked-rows", "shard-rows-*.answers"])
def test_a_flipped_bit_between_two_jobs_fails_the_batch_which_is_done_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A transform may be called as what its files hold, too."""
    pipeline.layout = layout_of(ONCE.replace("once", "rows"))
    lines = [line(9), line(8), line(9)]

    def flipped(tasks: Sequence[ShardTask]) -> list[bytes]:
        def flip() -> None:
            for path in (tmp for task in tasks[:1] for tmp in task.directory.glob(what)):
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 16
                path.write_bytes(data)

        if "answers" not in what:
            flip()
            return run_shards(tasks)
        reports = run_shards(tasks)
        flip()
        return reports

    with monkeypatch.context() as patched:
        patched.setattr(local, "run_shards", flipped)
        with pytest.raises(PipelineError, match="is damaged: it does not hold what another task of the batch wrote"):
            pipeline.run(lines)
    assert sorted(pipeline.run(lines))[:1] == [("dropped:rows", 2)]


def test_files_that_no_memory_names_are_removed(pipeline: Pipeline, tmp_path: Path) -> None:
    for number in range(KEPT_MEMORIES + 2):
        pipeline.run([line(number)], crashes=1)
    named = {
        segment
        for path in (tmp_path / "memories").glob("*.json")
        for transform in json.loads(path.read_text())["transforms"].values()
        for shard in transform["shards"]
        for segment in shard["segments"]
    }
    assert {path.name for path in (tmp_path / "segments").glob("*/*")} == named
    assert len(list((tmp_path / "memories").iterdir())) == KEPT_MEMORIES
    assert not (tmp_path / "exchange").exists()


def test_a_batch_whose_memory_is_gone_is_not_run_on_another_one(pipeline: Pipeline) -> None:
    for number in range(KEPT_MEMORIES + 2):
        pipeline.run([line(number)])
    with pytest.raises(PipelineError, match="batch 1 has to run again"):
        pipeline.store.before(1)
    assert pipeline.store.before(3).transforms["once"].remembered == 3


def test_a_transform_of_another_form_does_not_read_the_state(pipeline: Pipeline) -> None:
    pipeline.run([line(9)])
    pipeline.layout = layout_of(ONCE.replace("by: [attributes.id]", "by: [attributes.id, service]"))
    assert ("once", 1) in pipeline.run([line(9)])
    longer = ONCE.replace("window: 1h", "window: 2h").replace("by: [attributes.id]", "by: [attributes.id, service]")
    pipeline.layout = layout_of(longer)
    assert ("dropped:once", 2) in pipeline.run([line(9)])


def test_held_events_of_a_state_that_is_abandoned_are_counted_as_dropped(pipeline: Pipeline) -> None:
    counts = {f"{IN}:web": 2, "held_before:tail": 5, "abandoned:tail": 5, f"{PLACE}:{_code(pipeline, 'once')}": 2}
    ledger = ledger_of(pipeline.layout, counts)
    assert (ledger.missing, ledger.dropped["tail"]) == (0, 5)


def _code(pipeline: Pipeline, edge: str) -> int:
    return next(place.code for place in pipeline.layout.finals() if place.edge == edge)


def test_a_state_that_cannot_be_carried_over_is_named_with_its_flag(pipeline: Pipeline) -> None:
    pipeline.run([line(9), line(8)])
    memory = pipeline.store.last()
    same = pipeline.layout.plan
    longer = compile_pipeline(ONCE.replace("window: 1h", "window: 2h"), "shop.yaml")
    assert lost_state(memory, same, ()) is lost_state(memory, longer, ()) is None
    edited = compile_pipeline(ONCE.replace("by: [attributes.id]", "by: [host]").replace("twice", "thrice"), "shop.yaml")
    problem = lost_state(memory, edited, ())
    assert problem is not None
    assert "once (2 remembered, 0 events held): it was 'keys by attributes.id" in problem
    assert "--drop-state once" in problem
    assert "twice" not in problem  # nothing has come there
    assert lost_state(memory, edited, ("once",)) is None
