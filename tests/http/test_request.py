"""The head of a request: what is one, what is refused, and that it does not matter how the bytes are cut."""

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.http.request import HEAD_BYTES_MAX, HEADERS_MAX, LINE_BYTES_MAX, BadRequestError, HeadReader, Request

HEAD = b"GET /metrics?name%5B%5D=x HTTP/1.1\r\nHost: h\r\nAccept:  text/plain \r\n\r\n"


def read(*pieces: bytes) -> Request | HTTPStatus | None:
    reader = HeadReader()
    try:
        for piece in pieces:
            if (request := reader.feed(piece)) is not None:
                return request
    except BadRequestError as error:
        return error.status
    return None


def test_a_request() -> None:
    assert read(HEAD) == Request("GET", "/metrics", "name%5B%5D=x", {"host": "h", "accept": "text/plain"})
    assert read(HEAD.replace(b"\r\n", b"\n")) == read(HEAD)
    assert read(HEAD + b"a body") == read(HEAD)
    assert read(b"HEAD /%72eadyz HTTP/1.0\n\n") == Request("HEAD", "/readyz", "", {})
    assert read(HEAD[:-1]) is None
    assert read(b"GET / HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n") == Request("GET", "/", "", {"a": "2"})


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\n\r\n", 400),
        (b"G\xc3\xa4T / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/0.9\r\n\r\n", 505),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"get / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: b\r\n\r\n", 400),
        (b"GET /" + b"a" * LINE_BYTES_MAX, 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (HEADERS_MAX + 1), 431),
        (b"GET / HTTP/1.1\r\na: " + b"b" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\n" + (b"a: " + b"b" * 4_000 + b"\r\n") * 20, 431),
    ],
)
def test_a_refusal(head: bytes, status: int) -> None:
    assert read(head) == status


def test_a_head_at_its_limits_is_read() -> None:
    target = b"/" + b"a" * (LINE_BYTES_MAX - len("GET / HTTP/1.1"))
    assert isinstance(read(b"GET " + target + b" HTTP/1.1\n" + b"a: b\n" * HEADERS_MAX + b"\n"), Request)


NEARLY = st.lists(
    st.sampled_from([b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b"\n", b"\r", b"a: b", b":", b"\0", b"\xff"])
    | st.binary(max_size=5),
    max_size=12,
).map(b"".join)


@given(data=st.one_of(NEARLY, NEARLY.map(lambda tail: HEAD[:-2] + tail), st.binary(max_size=100)), cuts=st.data())
def test_any_bytes_give_the_same_however_they_are_cut(data: bytes, cuts: st.DataObject) -> None:
    places = sorted(cuts.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    pieces = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    whole = read(data)
    assert read(*pieces) == whole
    assert read(*(bytes([byte]) for byte in data)) == whole
