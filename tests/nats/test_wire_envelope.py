"""Liftbridge's envelope: read where it is one, refused where it was damaged, passed over where it only looks alike."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nats.envelopes import bytes_field, fields, message, number_field, sealed, varint

from logboom.base.errors import LogboomError, MessageTooLargeError, NotLeaderError, WrongLastOffsetError
from logboom.base.ids import Offset
from logboom.nats.wire.envelope import (
    ANSWERED_BYTES_MAX,
    HEADERS_MAX,
    MAGIC,
    AckPolicy,
    Envelope,
    Sealed,
    read_envelope,
)
from logboom.nats.wire.errors import DamagedEnvelopeError

FULL = message(
    b"value", key=b"key", headers={"h": b"1", "ü": b""}, inbox="acks.me", correlation="42", policy=AckPolicy.ALL
)


@pytest.mark.parametrize("crc", [True, False])
def test_every_field_is_read(crc: bool) -> None:
    assert read_envelope(sealed(FULL, crc=crc)) == Envelope(
        b"key", b"value", [(b"h", b"1"), ("ü".encode(), b"")], b"acks.me", b"42", AckPolicy.ALL
    )
    assert read_envelope(sealed(b"", crc=crc)) == Envelope(None, b"", [], b"", b"", AckPolicy.LEADER)


@given(
    st.binary(max_size=300),
    st.none() | st.binary(max_size=30),
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), st.binary(max_size=200), max_size=4),
    st.text(st.characters(codec="utf-8"), max_size=9),
    st.text(st.characters(codec="utf-8", exclude_characters=" \t\n\v\f\r"), max_size=9),
    st.sampled_from(AckPolicy),
    st.booleans(),
)
def test_what_a_client_writes_is_read(
    value: bytes,
    key: bytes | None,
    headers: dict[str, bytes],
    text: str,
    inbox: str,
    policy: AckPolicy,
    crc: bool,
) -> None:
    body = message(value, key=key, headers=headers, inbox=inbox, correlation=text, policy=policy)
    pairs = [(name.encode(), content) for name, content in headers.items()]
    assert read_envelope(sealed(body, crc=crc)) == Envelope(key, value, pairs, inbox.encode(), text.encode(), policy)


@pytest.mark.parametrize("inbox", [" ", "a b", "a\tb", "a 0\r\n\r\nPUB b", "\n"])
def test_an_ack_inbox_that_would_be_a_command(inbox: str) -> None:
    body = message(b"v", inbox=inbox)
    assert read_envelope(sealed(body)) is None
    with pytest.raises(DamagedEnvelopeError, match="an ack inbox is no subject"):
        read_envelope(sealed(body, crc=True))


@pytest.mark.parametrize("number", [10, 11])
def test_what_an_ack_repeats_is_bounded(number: int) -> None:
    """The ack inbox and the correlation id."""
    longest, longer = (bytes_field(number, b"i" * (ANSWERED_BYTES_MAX + more)) for more in (0, 1))
    assert read_envelope(sealed(message(b"v") + longest, crc=True)) is not None
    assert read_envelope(sealed(message(b"v") + longer)) is None
    with pytest.raises(DamagedEnvelopeError, match="has more than 1024 bytes"):
        read_envelope(sealed(message(b"v") + longer, crc=True))


def test_fields_that_others_know_are_passed_over() -> None:
    others = number_field(1, 7) + bytes_field(7, b"x") + varint(99 * 8 + 1) + bytes(8) + varint(98 * 8 + 5) + bytes(4)
    found = read_envelope(sealed(others + FULL + others))
    assert found == read_envelope(sealed(FULL))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"plain",
        MAGIC,
        MAGIC + b"\0\x08\0",
        MAGIC + b"\x01" + sealed(FULL)[5:],  # another version
        sealed(FULL, kind=1),
        MAGIC + b"\0\x07\0\0" + FULL,  # a header that is too short
        MAGIC + b"\0\xff\0\0" + FULL,  # one that reaches past the end
        MAGIC + b"\0\x08\x01\0" + FULL,  # a checksum that is not there
        sealed(b"text that goes on"),
        sealed(bytes_field(10, b"\xff")),
        sealed(number_field(12, 3)),
        sealed(number_field(3, 3)),
        sealed(bytes_field(3, b"x")[:-1]),
        sealed(b"\x80" * 11),
        sealed(number_field(0, 1)),
        sealed(varint(3 * 8 + 3)),
    ],
)
def test_what_only_looks_like_an_envelope_is_a_plain_message(payload: bytes) -> None:
    assert read_envelope(payload) is None


def test_one_with_a_wrong_checksum_is_damaged_and_one_with_a_right_one_holds_a_message() -> None:
    with pytest.raises(DamagedEnvelopeError, match="checksum"):
        read_envelope(sealed(FULL, crc=True)[:-1] + b"X")
    with pytest.raises(DamagedEnvelopeError, match="holds no message"):
        read_envelope(sealed(b"text that goes on", crc=True))
    many = message(headers={str(n): b"" for n in range(HEADERS_MAX + 1)})
    with pytest.raises(DamagedEnvelopeError, match="more than"):
        read_envelope(sealed(many, crc=True))


@given(st.data())
def test_mutated_bytes_raise_nothing_but_that(data: st.DataObject) -> None:
    """They are read, or refused as damaged; any other exception fails the test."""
    payload = bytearray(sealed(FULL, crc=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(0, len(payload)))]
    with contextlib.suppress(DamagedEnvelopeError):
        read_envelope(bytes(payload))


@pytest.mark.parametrize(
    ("outcome", "offset", "error"),
    [
        (Offset(41), 41, 0),
        (Offset(0), 0, 0),
        (NotLeaderError("elsewhere"), 0, 1),
        (WrongLastOffsetError(Offset(1), Offset(2)), 0, 2),
        (MessageTooLargeError("large"), 0, 3),
    ],
)
def test_the_ack_is_one_of_liftbridge(outcome: Offset | LogboomError, offset: int, error: int) -> None:
    envelope = read_envelope(sealed(FULL))
    assert envelope is not None
    ack = Sealed(envelope, b"orders.eu", 5_000_000_000).ack("orders", outcome, 6_000_000_000)
    assert ack[:8] == MAGIC + b"\0\x08\0\x01"
    told = dict(fields(ack[8:]))
    assert told.pop(4, 0) == offset
    assert told.pop(10, 0) == error
    assert told.pop(9, 0) == (0 if error else 6_000_000_000)
    assert told == {
        1: b"orders",
        2: b"orders.eu",
        3: b"orders.eu",
        5: b"acks.me",
        6: b"42",
        7: AckPolicy.ALL,
        8: 5_000_000_000,
    }
