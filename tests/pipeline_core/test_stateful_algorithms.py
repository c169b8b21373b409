"""What is decided by key with a memory: caps are held, rates are held, and weights estimate known totals."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.plan.sampling import xxh64
from logboom.pipeline.stateful import target_rate, token_bucket, volume_limit
from logboom.pipeline.stateful.grouping import ranks, sums_before, text_words

WORDS = st.lists(st.integers(0, 5), max_size=40)
BATCHES = st.lists(st.tuples(st.integers(1, 5_000), WORDS), min_size=1, max_size=8)
NOON_MS = 1_795_176_000_000


def words(numbers: object) -> np.ndarray:
    return np.array(numbers, np.uint64) + np.uint64(10)


def draws(count: int, start: int) -> np.ndarray:
    return np.array([xxh64(str(number).encode()) for number in range(start, start + count)], np.uint64)


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=30))
def test_equal_texts_have_equal_words(texts: list[str | None]) -> None:
    found = text_words(pa.array(texts, pa.string())).tolist()
    assert len(set(found)) == len(set(texts))
    for text, word in zip(texts, found, strict=True):
        assert word == (0 if text is None else xxh64(text.encode()))


@given(WORDS, st.data())
def test_sums_and_ranks_are_those_of_a_loop(groups: list[int], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 9), min_size=len(groups), max_size=len(groups)))
    seen: dict[int, int] = defaultdict(int)
    wanted = []
    for group, value in zip(groups, values, strict=True):
        wanted.append(seen[group])
        seen[group] += value
    assert sums_before(words(groups), np.array(values, np.int64)).tolist() == wanted
    order = words(values)
    by_rank: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, rank in enumerate(ranks(words(groups), order).tolist()):
        by_rank[groups[row]].append((rank, row))
    for rows in by_rank.values():
        assert [rank for rank, _ in sorted(rows)] == list(range(len(rows)))
        assert [row for _, row in sorted(rows)] == sorted((row for _, row in rows), key=lambda row: (values[row], row))


# --- volumes ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(BATCHES, st.integers(1, 30), st.integers(1, 3))
def test_of_each_key_and_window_the_first_events_up_to_the_cap_pass(
    batches: list[tuple[int, list[int]]], most: int, size: int
) -> None:
    cap = volume_limit.Cap(most=most, window_ms=4_000, keys_max=100)
    state, now_ms, passed = None, NOON_MS, Counter[tuple[int, int]]()
    for waited_ms, keys in batches:
        now_ms += waited_ms
        window = now_ms // 4_000
        over, state = volume_limit.advance(cap, state, words(keys), np.full(len(keys), size, np.int64), now_ms)
        for key, is_over in zip(keys, over.tolist(), strict=True):
            assert is_over == (passed[window, key] >= most)
            passed[window, key] += 0 if is_over else size
        assert all(used < most + size for used in passed.values())


def test_keys_that_there_is_no_room_for_share_a_cap() -> None:
    cap = volume_limit.Cap(most=2, window_ms=60_000, keys_max=3)
    keys, ones = words(range(100)), np.ones(100, np.int64)
    over, state = volume_limit.advance(cap, None, keys, ones, NOON_MS)
    assert int((~over).sum()) == 3 + 2
    assert state.num_rows == 4
    over, state = volume_limit.advance(cap, state, keys, ones, NOON_MS)
    assert int((~over).sum()) == 3
    assert state.num_rows == 4
    over, again = volume_limit.advance(cap, state, keys, ones, NOON_MS)
    assert over.all()
    assert again is state
    over, _ = volume_limit.advance(cap, state, keys, ones, NOON_MS + 60_000)
    assert int((~over).sum()) == 3 + 2


# --- seconds ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(BATCHES, st.sampled_from([0.2, 1, 2.5, 4]), st.sampled_from([2, 100]))
def test_weights_by_second_sum_to_the_input_and_no_key_is_faster(
    batches: list[tuple[int, list[int]]], per_second: float, keys_max: int
) -> None:
    """But for what was owed to keys that were forgotten, which is counted; a forgotten one begins anew."""
    bucket = token_bucket.Bucket(per_second=per_second, keys_max=keys_max)
    state, now_ms, started, forgotten = None, NOON_MS, 0, 0.0
    came, weight, kept = Counter[int](), defaultdict[int, float](float), Counter[int]()
    for waited_ms, keys in batches:
        now_ms += waited_ms
        drawn = draws(len(keys), started)
        started += len(keys)
        stays, weights, state, lost = token_bucket.advance(
            bucket, state, words(keys), drawn, np.ones(len(keys)), now_ms
        )
        forgotten += lost
        came.update(keys)
        for key, stay, one in zip(keys, stays.tolist(), weights.tolist(), strict=True):
            weight[key] += one if stay else 0
            kept[key] += stay
        assert sum(weight.values()) + token_bucket.owed_by(state) + forgotten == pytest.approx(came.total())
    took_s = (now_ms - NOON_MS) / 1_000
    if keys_max == 100:
        assert forgotten == 0
        assert all(count <= bucket.full + per_second * took_s for count in kept.values())


def test_of_a_second_the_kept_events_weigh_what_came_by_what_is_kept() -> None:
    keys = words([1] * 1_000 + [2] * 30 + [3] * 100)
    bucket = token_bucket.Bucket(per_second=100, keys_max=100)
    stays, weights, _, _ = token_bucket.advance(bucket, None, keys, draws(len(keys), 0), np.ones(len(keys)), NOON_MS)
    for key, kept, weight in ((1, 100, 10.0), (2, 30, 1.0), (3, 100, 1.0)):
        mine = stays & (keys == words([key])[0])
        assert (int(mine.sum()), set(weights[mine].tolist())) == (kept, {weight})


def test_an_idle_hour_is_no_burst_of_an_hour() -> None:
    bucket = token_bucket.Bucket(per_second=10, keys_max=100)
    keys = words([1] * 100_000)
    _, _, state, _ = token_bucket.advance(bucket, None, keys[:50], draws(50, 0), np.ones(50), NOON_MS)
    stays, _, _, _ = token_bucket.advance(
        bucket, state, keys, draws(len(keys), 50), np.ones(len(keys)), NOON_MS + 3_600_000
    )
    assert int(stays.sum()) <= 600


def test_the_keys_of_buckets_are_bounded() -> None:
    bucket = token_bucket.Bucket(per_second=1, keys_max=50)
    keys = words(range(1_000))
    stays, _, state, _ = token_bucket.advance(bucket, None, keys, draws(1_000, 0), np.ones(1_000), NOON_MS)
    assert stays.all()
    assert state.num_rows == 50


# --- targets ------------------------------------------------------------------------------------------------------


def test_a_target_is_held_and_totals_are_estimated() -> None:
    """Three keys of very different rates, one of which grows tenfold half-way."""
    target = target_rate.Target(per_second=100, over_ms=10_000, keys_max=100)
    state, kept, weight, came = None, defaultdict[int, list[int]](list), defaultdict[int, float](float), Counter[int]()
    for second in range(120):
        counts = {1: 2_000, 2: 50, 3: 300 if second < 60 else 3_000}
        keys = np.concatenate([np.full(count, key) for key, count in counts.items()])
        drawn = np.random.default_rng(second).integers(0, 1 << 64, len(keys), np.uint64)
        stays, rates, state = target_rate.advance(target, state, words(keys), drawn, NOON_MS + 1_000 * second)
        for key, count in counts.items():
            mine = stays & (keys == key)
            came[key] += count
            kept[key].append(int(mine.sum()))
            weight[key] += float(rates[mine].sum())
    for key in (1, 3):
        assert sum(kept[key][100:]) / 20 == pytest.approx(100, rel=0.15)
        assert weight[key] == pytest.approx(came[key], rel=0.05)
    assert weight[2] == came[2]
    assert min(kept[2]) == 50


def test_a_key_that_went_quiet_is_forgotten() -> None:
    target = target_rate.Target(per_second=10, over_ms=1_000, keys_max=100)
    nothing = np.zeros(0, np.uint64)
    _, _, state = target_rate.advance(target, None, words([1] * 1_000), draws(1_000, 0), NOON_MS)
    assert state.num_rows == 1
    for second in range(1, 20):
        _, _, state = target_rate.advance(target, state, nothing, nothing, NOON_MS + 1_000 * second)
    assert state.num_rows == 0
