"""Records that are packed before their place is known, and one header found among many records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.errors import CorruptBatchError
from logboom.base.ids import Offset
from logboom.records import (
    AlikeContents,
    Codec,
    Record,
    RecordLimits,
    batch_bytes_max,
    batch_of,
    build_batch,
    contents_bytes,
    has_key,
    header_values,
    iter_records,
    read_header,
    record_content,
    records_body,
    validate_produced,
)

names = st.text(st.characters(codec="utf-8"), max_size=6)
headers = st.lists(st.tuples(names | st.just("id"), st.none() | st.binary(max_size=9)), max_size=4)
fields = st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9_000), headers)
LIMITS = RecordLimits(1 << 30, 1 << 30, 1 << 20)


@settings(deadline=None)
@given(st.lists(fields, min_size=1, max_size=20), st.integers(0, 1 << 45))
def test_a_batch_of_contents_is_the_batch_of_the_records(
    given_records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], time_ms: int
) -> None:
    contents = [
        record_content(key, value, [(name.encode(), content) for name, content in more])
        for key, value, more in given_records
    ]
    batch = batch_of(contents, time_ms)
    expected = [Record(Offset(0), time_ms, key, value, tuple(more)) for key, value, more in given_records]
    assert batch == build_batch(expected)
    assert len(batch) <= batch_bytes_max(contents)
    assert [has_key(content) for content in contents] == [key is not None for key, _, _ in given_records]


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193, 20_000])
def test_any_number_of_records(count: int) -> None:
    batch = batch_of([record_content(None, b"%d" % n) for n in range(count)], 5)
    header = validate_produced(batch, LIMITS).header
    assert [one.value for one in iter_records(batch, 0, header, 1 << 30)] == [b"%d" % n for n in range(count)]


@settings(deadline=None)
@given(
    st.sampled_from([1, 2, 63, 64, 65, 200, 8_191, 8_192, 8_193]), st.lists(st.integers(0, 300), max_size=3), st.data()
)
def test_a_batch_of_columns_is_the_batch_of_their_contents(count: int, sizes: list[int], data: st.DataObject) -> None:
    texts = [data.draw(st.binary(max_size=5)) for _ in range(len(sizes) + 2)]
    columns = [[bytes((place % 251,)) * size for place in range(count)] for size in (*sizes, 4)]
    fields_ = list(zip(texts, columns, strict=False))
    alike = AlikeContents(fields_, texts[-1])
    contents = [b"".join([text + column[at] for text, column in fields_]) + texts[-1] for at in range(count)]
    assert list(alike) == contents
    assert alike[1:3] == contents[1:3]
    assert contents_bytes(alike) == contents_bytes(contents) == sum(map(len, contents))
    assert batch_of(alike, 7) == batch_of(contents, 7)


@given(st.lists(fields, min_size=1, max_size=12), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_one_header_is_found_wherever_it_is(
    given_records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: Codec
) -> None:
    records = [Record(Offset(0), 7 * n, key, value, tuple(more)) for n, (key, value, more) in enumerate(given_records)]
    batch = build_batch(records, codec=codec)
    body = records_body(batch, 0, read_header(batch), 1 << 30)
    expected = []
    for n, (_, _, more) in enumerate(given_records):
        value = next((content for name, content in more if name == "id" and content is not None), None)
        if value is not None:
            expected.append((n, 7 * n, value))
    assert list(header_values(body, len(records), b"id")) == expected


@given(st.data())
def test_damaged_records_raise_nothing_but_that(data: st.DataObject) -> None:
    contents = [record_content(b"k", b"v" * n, ((b"id", b"%d" % n), (b"h", None))) for n in range(4)]
    batch = batch_of(contents, 0)
    body = bytearray(records_body(batch, 0, read_header(batch), 1 << 20))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = list(header_values(bytes(body), 4, b"id"))
    except CorruptBatchError:
        return
    assert len(found) <= 4
