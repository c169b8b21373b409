"""Produce requests that are read by comparison are answered and stored as if each had been read field by field.

A client sends requests of one kind again and again, so that the door knows them and takes them in runs; a stranger,
who is another client with each request, sends the same to a stream of its own. Whatever the records are, and whatever
was changed behind the part that is compared, both are told the same, and both streams hold the same bytes.
"""

import itertools
import re
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from tests.kafka.attack import Raw, good
from tests.kafka.door import frame, written
from tests.kafka.fuzzing import TIMEOUT_S, Besieged, batches
from tests.kafka.test_hot_apis import fetch_request, produce_request

from logboom.kafka.wire.messages import make, nested
from logboom.records import iter_batches

USUAL, STRANGE = "a-stream", "b-stream"
"""They differ in one letter, so that a change of the name hits that letter of both or of neither."""
HEAD_BYTES = 22
"""Length, API key, version, correlation id and a client id of eight bytes."""
EXAMPLES = 60
NUMBERS = itertools.count()
UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Named:
    """A stream as requests name it."""

    def __init__(self, name: str, id_: UUID) -> None:
        self.name, self.id = name, id_


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    one = Besieged(tmp_path_factory.mktemp("usual"))
    one.start()
    with Raw(one.broker.kafka) as client:
        assert client.create(USUAL) is ErrorCode.none
        assert client.create(STRANGE) is ErrorCode.none
    yield one
    one.broker.stop()


def ids(besieged: Besieged) -> dict[str, Named]:
    cls = load_request_schema(3, 12)
    topics = tuple(make(nested(cls, "topics"), topic_id=None, name=name) for name in (USUAL, STRANGE))
    with Raw(besieged.broker.kafka) as client:
        reply = client.ask(
            3, 12, topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
    return {topic.name: Named(topic.name, topic.topic_id) for topic in reply.topics}


def answers(client: Raw, version: int, frames: list[bytes]) -> list[Any]:
    """What each request is told, without what must differ; all are sent at once, and `closed` may come last."""
    found: list[Any] = []
    try:
        client.socket.sendall(b"".join(frames) + frame(18, 0, 77, b""))
        while (payload := client.reply())[:4] != struct.pack(">i", 77):
            cls: Any = load_response_schema(0, version)
            reply, _ = entity_reader(cls)(payload, 5 if cls.__header_schema__.__flexible__ else 4)
            found += [
                (payload[:4], topic_name(topic), part.index, part.error_code, part.base_offset, message(topic, part))
                for topic in reply.responses
                for part in topic.partition_responses
            ]
    except ConnectionError:
        found.append("closed")
    return found


def topic_name(topic: Any) -> Any:
    """Which of the two it is, by name or id, is told apart nowhere; whether the change hit the name is."""
    name: str = getattr(topic, "name", None) or ""
    return name.removeprefix(USUAL[0]).removeprefix(STRANGE[0])


def message(topic: Any, part: Any) -> Any:
    """What the error says, whatever the change made of either stream's name or id."""
    text = UUID_TEXT.sub("ID", getattr(part, "error_message", None) or "")
    for name in (getattr(topic, "name", None), USUAL, STRANGE):
        text = text.replace(name, "NAME") if name else text
    return text


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, list[bytes], Any]:
    """Version, acks, the records of each request, and what is done to the last one behind its head."""
    version = draw(st.integers(3, 13))
    records = draw(st.lists(batches() | st.just(bytes(good(b"usual"))), min_size=1, max_size=8))
    acks = draw(st.sampled_from([-1, 1]))
    change = draw(st.none() | st.tuples(st.integers(0, 60), st.sampled_from([b"\0", b"\xff", b"\x01", b"\0\0\0"])))
    return version, acks, records, change


def changed(data: bytes, change: Any) -> bytes:
    """A request whose last bytes were put another way, its length made to fit."""
    if change is None:
        return data
    back, new = change
    at = max(HEAD_BYTES, len(data) - back)
    body: bytes = data[4:at] + new + data[at + (len(new) if back % 2 else 0) :]
    return struct.pack(">i", len(body)) + body


def test_what_is_read_by_comparison_is_told_and_stored_alike(besieged: Besieged) -> None:
    names = ids(besieged)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @example((3, -1, [b""], (19, b"\0")))
    @given(runs())
    def compare(drawn: tuple[int, int, list[bytes], Any]) -> None:
        version, acks, records, change = drawn
        found = []
        for name in (USUAL, STRANGE):
            frames = []
            for number, data in enumerate([bytes(good(b"first")), *records]):
                client_id = b"the same" if name == USUAL else b"%08d" % next(NUMBERS)
                body = written(produce_request(version, names[name], {0: data}, acks=acks))
                frames.append(frame(0, version, number, body, client_id))
            frames[-1] = changed(frames[-1], change)
            with Raw(besieged.broker.kafka, TIMEOUT_S) as client:
                # The last may close the connection, before what was asked with it is answered: it goes alone.
                steps = (frames[:1], frames[1:-1], frames[-1:])
                found.append([told for step in steps for told in answers(client, version, step)])
        assert found[0] == found[1]
        besieged.must_be_sound()

    compare()
    with Raw(besieged.broker.kafka) as client:
        logs = [stored(client, names[name]) for name in (USUAL, STRANGE)]
    assert len(logs[0]) > 1_000
    assert logs[0] == logs[1]


def stored(client: Raw, stream: Named) -> bytes:
    """All bytes of a stream."""
    data, offset = b"", 0
    while True:
        reply = client.ask(1, 12, fetch_request(12, stream, {0: offset}))
        (part,) = reply.responses[0].partitions
        records = bytes(part.records or b"")
        if not records:
            return data
        data += records
        offset = next_offset(records)


def next_offset(records: bytes) -> int:
    return [header.next_offset for _, header in iter_batches(records)][-1]
