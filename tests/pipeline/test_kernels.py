"""A pass over Arrow batches: each row to the kernel of its place, in the order in which the rows came."""

import json
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.execute.stages import REPORT_AT, ExecutionStage, StageRunner, flat_columns, run_pass
from logboom.pipeline.mask.rules import MaskRule
from logboom.pipeline.parse.formats.json import JsonFormat
from logboom.pipeline.parse.formats.logfmt import LogfmtFormat
from logboom.pipeline.parse.rule import ParseRule
from logboom.pipeline.plan.layout import KernelNode, KernelPass
from logboom.pipeline.plan.nodes import mask_column
from logboom.pipeline.route.rows import AT
from logboom.pipeline.transforms.mask import MaskTransform
from logboom.pipeline.transforms.parse import ParseTransform

JSON = ParseTransform(name="json", line=1, inputs=("web",), rules=(ParseRule(label="j", line=1, format=JsonFormat()),))
LOGFMT = ParseTransform(
    name="logfmt", line=1, inputs=("web",), rules=(ParseRule(label="l", line=1, format=LogfmtFormat()),)
)
MASK = MaskTransform(
    name="mask", line=1, inputs=("json",), rules=(MaskRule(label="email", line=1, kind="email", action="redact"),)
)
AT_JSON, AT_LOGFMT, AT_MASK, AFTER_LOGFMT, AFTER_MASK, DEAD_JSON, DEAD_LOGFMT = 0, 1, 2, 3, 4, 10_000, 10_001
PASS = KernelPass(
    (
        KernelNode(JSON, (AT_JSON,), AT_MASK, DEAD_JSON),
        KernelNode(LOGFMT, (AT_LOGFMT,), AFTER_LOGFMT, DEAD_LOGFMT),
        KernelNode(MASK, (AT_MASK,), AFTER_MASK, DEAD_JSON),
    )
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _batch(rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    count = len(rows)
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array(["web"] * count),
            "stream": pa.array(["web"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
            "headers": pa.nulls(count, HEADERS),
            AT: pa.array([at for at, _ in rows], pa.int32()),
        }
    )


def _run(rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    return run_pass(PASS, {}, _batch(rows))


def _record(kind: str, number: int) -> tuple[int, bytes]:
    text = f"{number} a@example.com"
    return {
        "json": (AT_JSON, json.dumps({"msg": text}).encode()),
        "logfmt": (AT_LOGFMT, f'level=info msg="{text}"'.encode()),
        "dead": (AT_JSON, b'{"cut": '),
    }[kind]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(("json", "logfmt", "dead")), min_size=1, max_size=12))
def test_rows_keep_their_order_and_go_where_they_belong(kinds: list[str]) -> None:
    done = _run([_record(kind, number) for number, kind in enumerate(kinds)])
    assert done.column("offset").to_pylist() == list(range(len(kinds)))
    places = {"json": AFTER_MASK, "logfmt": AFTER_LOGFMT, "dead": DEAD_JSON}
    assert done.column(AT).to_pylist() == [places[kind] for kind in kinds]
    words = {"json": "[email]", "logfmt": "a@example.com", "dead": None}
    bodies = [None if kind == "dead" else f"{number} {words[kind]}" for number, kind in enumerate(kinds)]
    assert done.column("body").to_pylist() == bodies
    assert sum(done.column(mask_column("email")).to_pylist()) == kinds.count("json")


def test_only_the_dead_keep_their_bytes() -> None:
    done = _run([_record("json", 0), _record("dead", 1)])
    assert done.column("value").to_pylist() == [None, b'{"cut": ']
    assert done.column("dead_stage").to_pylist() == [None, "json"]


def test_the_columns_are_those_that_spark_was_told() -> None:
    assert _run([_record("logfmt", 0)]).schema.names == [name for name, _ in flat_columns((mask_column("email"),))]


def test_a_segment_gives_its_rows_and_behind_them_its_counts() -> None:
    batch = _batch([_record("json", 0), _record("dead", 1)]).drop_columns([AT])
    runner = StageRunner(ExecutionStage(None, (PASS,)), {}, {"web": AT_JSON}, None)
    *rows, told = runner([batch, batch.slice(0, 0)])
    assert [row.column(AT).to_pylist() for row in rows] == [[AFTER_MASK, DEAD_JSON]]
    assert told.column(AT).to_pylist() == [REPORT_AT]
    counts = json.loads(told.column("value")[0].as_py())
    assert counts == {"in:web": 2, "bytes_in:web": sum(map(len, batch.column("value").to_pylist())), "masked:email": 1}


def test_the_next_segment_takes_over_the_counts_and_no_row_of_them() -> None:
    first = StageRunner(ExecutionStage(None, (PASS,)), {}, {"web": AT_JSON}, None)
    given = list(first([_batch([_record("json", 0)]).drop_columns([AT])]))
    second = StageRunner(ExecutionStage(None, ()), {}, None, None)
    *rows, told = second(given)
    assert [row.num_rows for row in rows] == [1]
    assert json.loads(told.column("value")[0].as_py())["in:web"] == 1


def test_blank_lines_leave_by_the_place_of_what_is_dropped() -> None:
    dropping = ParseTransform(name="json", line=1, inputs=("web",), rules=JSON.rules, blank_lines="drop")
    passing = KernelPass((KernelNode(dropping, (AT_JSON,), AT_MASK, DEAD_JSON, (-1,)),))
    lines = [b'{"msg":"a"}', b" ", b"{", b"\n"]
    after = run_pass(passing, {}, _batch([(AT_JSON, line) for line in lines]))
    assert after.column(AT).to_pylist() == [AT_MASK, -1, DEAD_JSON, -1]
    assert after.column("value").to_pylist() == [None, None, b"{", None]
