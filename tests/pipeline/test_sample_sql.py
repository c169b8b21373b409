"""The sampling decision in Spark's SQL is the one in Python, key by key and bit by bit."""

import random
from typing import Any

import pytest

from logboom.pipeline.plan.sampling import keep_condition, keeps, weight_expression
from logboom.pipeline.transforms.sample import SampleTransform

pytestmark = pytest.mark.spark


def keys() -> list[str]:
    dice = random.Random(7)
    traces = [f"{dice.getrandbits(128):032x}" for _ in range(1_000)]
    return [
        "",
        "é€\U0001f600",
        *traces,
        *(f"web:{index % 3}:{index}" for index in range(1_000)),
        *("x" * n for n in range(70)),
    ]


@pytest.mark.parametrize(
    ("rate", "follows_weight", "exclude"),
    [(1, False, None), (12.5, False, None), (3, True, None), (10, False, "severity_number >= 24 -- fatal")],
)
def test_sql_and_python_decide_alike(spark: Any, rate: float, follows_weight: bool, exclude: str | None) -> None:
    node = SampleTransform(name="s", line=1, inputs=("p",), rate=rate, follows_weight=follows_weight, exclude=exclude)
    rows = [
        (key if index % 2 else None, key, 1.0 if index % 3 else 10.0, index % 25) for index, key in enumerate(keys())
    ]
    frame = spark.createDataFrame(rows, "trace_id string, event_id string, weight double, severity_number int")
    kept = frame.selectExpr(
        "*", f"{keep_condition(node.sampling)} AS kept", f"{weight_expression(node.sampling)} AS grown"
    ).collect()
    for row in kept:
        always = exclude is not None and row.severity_number >= 24
        assert row.kept == (always or keeps(row.event_id, rate, row.weight if follows_weight else 1.0))
        assert row.grown == (row.weight if always else row.weight * rate)
