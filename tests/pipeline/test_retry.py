"""Dead letters of events that have left a transform with a state: tried again as the records they were."""

import json
from pathlib import Path
from typing import Any

import msgspec
from tests.pipeline.support import header, make_stream, publish, records
from tests.support.server import BrokerProcess

from logboom.pipeline.checkpoint.keeping import FileOnDisk
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.run.dead_letters import DeadLetter, RetriedLetters, common_reasons, retry

FILE = """
name: held
sources:
  web: {type: stream, stream: held-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
sinks:
  out: {type: console, inputs: [parsed]}
"""


def _letter(number: int, origin: str, event_id: str | None) -> DeadLetter:
    given: dict[str, Any] = {} if event_id is None else {"event_id": event_id}
    return DeadLetter(
        id=f"held.dead.small/0/{number}",
        time_ms=1,
        stage="small",
        reason="a condition of small failed on it",
        form="event",
        origin=origin,
        source="web",
        edge=None,
        key=None,
        value=json.dumps({"body": "x", **given}).encode(),
        headers=(),
    )


def test_the_reasons_that_most_letters_have_come_first() -> None:
    letters = [_letter(number, "web/0/0", None) for number in range(4)]
    letters[2:] = [msgspec.structs.replace(letter, reason=f"{letter.id} is odd") for letter in letters[2:]]
    found = common_reasons(letters, 2)
    assert found == [("small", "a condition of small failed on it", 2), ("small", "held.dead.small/0/2 is odd", 1)]


def test_what_has_a_record_is_sent_and_what_has_none_keeps_no_other_back(broker: BrokerProcess, tmp_path: Path) -> None:
    make_stream(broker.kafka, "held-web", 1)
    publish(broker.kafka, "held-web", [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}'], 1)
    made = "held:traces/3/794354201399394304"
    letters = [
        _letter(0, "held-web/0/0", "held-web:0:0"),
        _letter(1, made, "held-web:0:1"),
        _letter(2, made, "held-web:0:2.4"),
        _letter(3, made, "held:load:3:794354201399394304"),
        _letter(4, made, None),
        _letter(5, "held-web/0/99", "held-web:0:99"),
    ]
    book = RetriedLetters(FileOnDisk(tmp_path / "retried.json"))
    plan = compile_pipeline(FILE, "held.yaml")
    done = retry(StreamAdmin(broker.kafka), plan, letters, book)
    assert done.sent == tuple(letter.id for letter in letters[:3])
    assert list(done.left.values()) == [
        "the event has no original record: it was created by load",
        "the event's id does not contain a record's position",
        "the stream no longer holds the record held-web/0/99",
    ]
    again = [message for message in records(broker.kafka, "held-web") if message.offset() >= 3]
    assert [message.value() for message in again] == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']
    assert [header(message, "logboom-retry-of") for message in again] == list(done.sent)
    assert [letter.id in RetriedLetters(FileOnDisk(tmp_path / "retried.json")) for letter in letters] == [True] * 3 + [
        False
    ] * 3
