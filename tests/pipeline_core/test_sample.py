"""Sampling: the rate is honoured, fates are shared, higher rates keep subsets, and the SQL says what Python says."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.plan.sampling import keep_condition, keeps, weight_expression, xxh64
from logboom.pipeline.transforms.sample import SampleTransform

RATES = st.floats(1, 10_000, allow_nan=False)
KEYS = st.text(max_size=40)


def sample(rate: float, **options: object) -> SampleTransform:
    return SampleTransform(name="s", line=1, inputs=("p",), rate=rate, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"ABC", 42, 4105715581806190027),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    """`ABC` is the example of `pyspark.sql.functions.xxhash64`; the others are published with the hash."""
    assert xxh64(data, seed) == expected


@pytest.mark.parametrize("rate", [1, 2, 10, 12.5, 100])
def test_the_rate_is_honoured(rate: float) -> None:
    count = 40_000
    kept = sum(keeps(f"trace-{index}", rate) for index in range(count))
    spread = (count * (1 / rate) * (1 - 1 / rate)) ** 0.5
    assert abs(kept - count / rate) <= 5 * spread
    assert rate > 1 or kept == count


@settings(max_examples=200)
@given(KEYS, RATES, RATES)
def test_what_a_higher_rate_keeps_a_lower_one_keeps_too(key: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert keeps(key, low) or not keeps(key, high)


@settings(max_examples=100)
@given(KEYS, RATES)
def test_the_same_key_has_the_same_fate(key: str, rate: float) -> None:
    assert keeps(key, rate) is keeps(str(key.encode(), "utf-8"), rate)


def test_two_samples_in_a_row_keep_the_product_of_their_rates() -> None:
    """The second counts from the weight the first has written, else it would keep all that the first kept."""
    first = [key for key in map(str, range(60_000)) if keeps(key, 10)]
    second = [key for key in first if keeps(key, 10, weight=10.0)]
    assert second == [key for key in map(str, range(60_000)) if keeps(key, 100)]
    assert 450 < len(second) < 750


def test_the_sql_compares_the_same_bits_with_the_same_threshold() -> None:
    sql = keep_condition(sample(12.5).sampling)
    match = re.fullmatch(
        r"shiftrightunsigned\(xxhash64\(coalesce\(CAST\(\(\ntrace_id\n\) AS STRING\), event_id\)\), 11\) < (\d+)L", sql
    )
    assert match is not None
    threshold = int(match[1])
    for index in range(2_000):
        assert keeps(str(index), 12.5) is (xxh64(str(index).encode()) >> 11 < threshold)


def test_weights_are_multiplied_and_excluded_events_keep_theirs() -> None:
    assert weight_expression(sample(10).sampling) == "weight * 10.0D"
    excluded = sample(10, exclude="severity_number >= 17")
    assert weight_expression(excluded.sampling) == (
        "CASE WHEN coalesce((\nseverity_number >= 17\n), false) THEN weight ELSE weight * 10.0D END"
    )
    assert keep_condition(excluded.sampling).startswith("(\nseverity_number >= 17\n) OR shiftrightunsigned(")
    assert "(weight * 10.0D)" in keep_condition(sample(10, follows_weight=True).sampling)
