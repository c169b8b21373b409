"""Walking by columns and by shapes finds exactly what walking record by record finds."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.base.errors import CorruptBatchError, InvalidRecordError
from logboom.base.ids import Offset
from logboom.records import HEADER_BYTES, Record, build_batch
from logboom.records.varint import varint
from logboom.records.walk import _walk_record, walk_records


def by_the_book(body: bytes, count: int) -> type[Exception] | None:
    """The plain way: each record on its own; the error, if any."""
    position = 0
    try:
        if count * 7 > len(body):
            return InvalidRecordError
        for delta in range(count):
            position = _walk_record(body, position, varint(delta))
    except IndexError:
        return CorruptBatchError
    except (CorruptBatchError, InvalidRecordError) as error:
        return type(error)
    return None if position == len(body) else InvalidRecordError


def walked(body: bytes, count: int) -> type[Exception] | None:
    try:
        walk_records(body, count)
    except (CorruptBatchError, InvalidRecordError) as error:
        return type(error)
    return None


shapes = st.tuples(
    st.integers(1, 90),  # records in a row of this shape
    st.one_of(st.none(), st.integers(0, 70)),  # bytes of the key
    st.one_of(st.none(), st.integers(0, 150)),  # bytes of the value
    st.sampled_from((0, 1, 100, 20_000)),  # milliseconds from one to the next
    st.integers(0, 3),  # headers
)


def body_of(runs: list[tuple[int, int | None, int | None, int, int]]) -> tuple[bytes, int]:
    records: list[Record] = []
    time_ms = 1_000
    for count, key, value, gap_ms, headers in runs:
        for _ in range(count):
            records.append(
                Record(
                    Offset(len(records)),
                    time_ms,
                    None if key is None else bytes(key),
                    None if value is None else b"v" * value,
                    tuple((f"name-{n}", str(time_ms % 777).encode() if n else None) for n in range(headers)),
                )
            )
            time_ms += gap_ms
    return bytes(build_batch(records)[HEADER_BYTES:]), len(records)


@settings(max_examples=150, deadline=None)
@given(st.lists(shapes, min_size=1, max_size=5))
@example([(200, None, 10, 0, 0)])
@example([(9, 3, None, 20_000, 0)])
def test_what_is_right_is_right(runs: list[tuple[int, int | None, int | None, int, int]]) -> None:
    body, count = body_of(runs)
    assert walked(body, count) is None
    assert by_the_book(body, count) is None


@settings(max_examples=400, deadline=None)
@given(
    st.lists(shapes, min_size=1, max_size=4),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(-2, 2),
    st.integers(0, 12),
)
def test_what_is_wrong_is_wrong(
    runs: list[tuple[int, int | None, int | None, int, int]],
    changes: list[tuple[float, int]],
    more: int,
    cut: int,
) -> None:
    """Bytes changed anywhere, a count that lies, an end that is missing: the same verdict as record by record."""
    body, count = body_of(runs)
    changed = bytearray(body)
    for where, byte in changes:
        changed[int(where * len(changed))] = byte
    broken = bytes(changed[: len(changed) - cut])
    assert (walked(broken, max(1, count + more)) is None) == (by_the_book(broken, max(1, count + more)) is None)


def test_headers_that_differ_in_their_last_value_alone_are_still_read_to_their_end() -> None:
    def body(time: bytes, last: bytes) -> bytes:
        headers = (("time", time), ("position", last))
        return bytes(build_batch([Record(Offset(n), 5, b"k", b"v" * (n % 3), headers) for n in range(20)]))[
            HEADER_BYTES:
        ]

    for last in (b"12", b"34", b"5", b"678", b""):
        assert walked(body(b"1", last), 20) is None
        assert walked(body(b"2", last), 20) is None
    good = body(b"2", b"90")
    for at in range(len(good)):
        for bit in (1, 2, 128):
            bad = good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :]
            assert (walked(bad, 20) is None) == (by_the_book(bad, 20) is None), (at, bit)
