"""Frames come out as they went in, however the bytes arrive."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kafka.door import frame

from logboom.client.frames import ANSWER_BYTES_MAX, FrameError, Frames, framed


@given(st.integers(0, 2**31 - 1), st.text("ab-é", max_size=9), st.lists(st.binary(max_size=9), max_size=4))
def test_a_request_has_the_head_that_kio_knows(correlation: int, client: str, body: list[bytes]) -> None:
    parts = framed((3, 4), correlation, client, iter(body))
    assert b"".join(parts) == frame(3, 4, correlation, b"".join(body), client.encode())


@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40)), max_size=6),
    st.lists(st.integers(0, 300), max_size=12),
)
def test_answers_come_whole_however_they_are_cut(answers: list[tuple[int, bytes]], cuts: list[int]) -> None:
    sent = b"".join(struct.pack(">ii", 4 + len(body), correlation) + body for correlation, body in answers)
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    frames = Frames()
    pieces = [sent[start:end] for start, end in pairwise(edges)]
    got = [(correlation, bytes(body)) for piece in pieces for correlation, body in frames.take(piece)]
    assert got == answers


@pytest.mark.parametrize("size", [-1, 0, 3, ANSWER_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_no_answer_has_is_told_before_its_bytes_are_waited_for(size: int) -> None:
    whole = struct.pack(">ii", 4, 7)
    taken = Frames().take(whole + struct.pack(">i", size))
    correlation, body = next(taken)
    assert (correlation, bytes(body)) == (7, b"")
    with pytest.raises(FrameError, match=f"an answer of {size} bytes; is it a Kafka server?"):
        next(taken)
