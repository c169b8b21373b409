"""The header block, beside a model that writes blocks and one that reads them by hand."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nats.wire.errors import HeaderError
from logboom.nats.wire.headers import FIELDS_MAX, read_fields

names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=20)
values = st.binary(max_size=30).filter(lambda value: b"\r\n" not in value and not value.endswith(b"\r"))
blanks = st.text(" \t", max_size=3).map(str.encode)
written = st.lists(st.tuples(names.map(str.encode), blanks, values, blanks), max_size=8)


def model(block: bytes) -> list[tuple[bytes, bytes]]:
    """Reads a right block one byte after the other, as the ADR describes it."""
    fields: list[tuple[bytes, bytes]] = []
    at = block.index(b"\r\n") + 2
    while block[at : at + 2] != b"\r\n":
        name = b""
        while block[at : at + 1] != b":":
            name += block[at : at + 1]
            at += 1
        at += 1
        value = b""
        while block[at : at + 2] != b"\r\n":
            value += block[at : at + 1]
            at += 1
        at += 2
        while value[:1] in (b" ", b"\t") and value:
            value = value[1:]
        while value[-1:] in (b" ", b"\t") and value:
            value = value[:-1]
        fields.append((name, value))
    return fields


@given(written, st.sampled_from([b"", b" 503", b" 100 Idle Heartbeat"]))
def test_a_block_is_read_as_it_was_written(fields: list[tuple[bytes, bytes, bytes, bytes]], status: bytes) -> None:
    lines = b"".join(name + b":" + before + value + after + b"\r\n" for name, before, value, after in fields)
    block = b"NATS/1.0" + status + b"\r\n" + lines + b"\r\n"
    assert read_fields(block) == model(block)
    assert [name for name, _ in read_fields(block)] == [name for name, _, _, _ in fields], "in order, repeats kept"


def test_no_block_has_no_fields() -> None:
    assert read_fields(b"") == []


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"NATS/1.1\r\n\r\n", "does not begin with NATS/1.0"),
        (b"NATS/1.00\r\n\r\n", "does not begin with NATS/1.0"),
        (b"NATS/1.0\r\nA: 1\r\n", "does not end with an empty line"),
        (b"NATS/1.0\r\n\r\nA: 1\r\n\r\n", "has no name"),
        (b"NATS/1.0\r\nA\r\n\r\n", "has no name"),
        (b"NATS/1.0\r\n: 1\r\n\r\n", "has no name"),
        (b"NATS/1.0\r\nA : 1\r\n\r\n", "has no name"),
        (b"NATS/1.0\r\n folded: 1\r\n\r\n", "has no name"),
        ("NATS/1.0\r\nÄ: 1\r\n\r\n".encode(), "has no name"),
        (b"NATS/1.0\r\nA\0: 1\r\n\r\n", "has no name"),
        (b"NATS/1.0\r\n" + b"A: 1\r\n" * (FIELDS_MAX + 1) + b"\r\n", f"more than {FIELDS_MAX} headers"),
    ],
)
def test_what_is_wrong_with_a_block_is_said(block: bytes, why: str) -> None:
    with pytest.raises(HeaderError, match=why):
        read_fields(block)


def test_as_many_headers_as_there_may_be() -> None:
    assert len(read_fields(b"NATS/1.0\r\n" + b"A: 1\r\n" * FIELDS_MAX + b"\r\n")) == FIELDS_MAX


joined = written.map(lambda fields: b"NATS/1.0\r\n" + b":".join(b"".join(one) for one in fields))


@given(st.binary(max_size=60) | joined)
def test_no_bytes_raise_anything_else(block: bytes) -> None:
    """They are read, or refused with the error of headers; any other exception fails the test."""
    with contextlib.suppress(HeaderError):
        read_fields(block)
