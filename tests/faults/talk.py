"""A plain conversation with a broker in another process, request by request, so that every single answer is seen.

No client library: those hide retriable errors by trying again, and the errors are what is looked at here.
"""

import asyncio
import http.client
from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, batch
from tests.kafka.test_hot_apis import fetch_request, produce_request
from tests.support.waiting import WAIT_S

from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.records import iter_batches, iter_records

CREATE_TOPICS, DELETE_TOPICS, PRODUCE, FETCH, METADATA = 19, 20, 0, 1, 3


@dataclass(frozen=True)
class Answer:
    """What became of one record."""

    error: ErrorCode
    offset: int
    text: str | None

    @property
    def ok(self) -> bool:
        return self.error is ErrorCode.none


class Talk:
    """One connection, used from one thread."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._loop = asyncio.new_event_loop()
        self._client = self._run(Client.connect((host, int(port))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._client.close())
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, WAIT_S))

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        return self._run(self._client.ask(key, version, **fields))

    def _send(self, key: int, version: int, request: Any) -> Any:
        self._client.send(key, version, request)
        return self._run(self._client.reply())

    def create(self, name: str, partitions: int = 1, **config: str) -> ErrorCode:
        cls = load_request_schema(CREATE_TOPICS, 5)
        topic, setting = nested(cls, "topics"), nested(cls, "topics", "configs")
        settings = tuple(make(setting, name=key.replace("_", "."), value=value) for key, value in config.items())
        one = make(topic, name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=settings)
        reply = self.ask(CREATE_TOPICS, 5, topics=(one,), timeout=milliseconds(30_000), validate_only=False)
        code: ErrorCode = reply.topics[0].error_code
        return code

    def delete(self, name: str) -> ErrorCode:
        reply = self.ask(DELETE_TOPICS, 4, topic_names=(name,), timeout=milliseconds(30_000))
        code: ErrorCode = reply.responses[0].error_code
        return code

    def produce(
        self, stream: str, *values: bytes, index: int = 0, timestamp_ms: int = 1_000, timeout_ms: int = 50_000
    ) -> Answer:
        """Send one batch with acks=all."""
        records = {index: batch(*values, timestamp_ms=timestamp_ms)}
        request = produce_request(9, SimpleNamespace(name=stream, id=None), records, timeout=milliseconds(timeout_ms))
        part = self._send(PRODUCE, 9, request).responses[0].partition_responses[0]
        return Answer(part.error_code, part.base_offset, part.error_message)

    def fetch(self, stream: str, offset: int, index: int = 0) -> tuple[ErrorCode, dict[int, bytes]]:
        """One fetch: what was told, and the values by their offsets."""
        request = fetch_request(11, SimpleNamespace(name=stream, id=None), {index: offset})
        part = self._send(FETCH, 11, request).responses[0].partitions[0]
        found: dict[int, bytes] = {}
        for position, header in iter_batches(part.records or b""):
            for record in iter_records(part.records, position, header, 1 << 26):
                found[record.offset] = record.value or b""
        return part.error_code, found

    def read_all(self, stream: str, index: int = 0, offset: int = 0) -> dict[int, bytes]:
        """Everything committed."""
        found: dict[int, bytes] = {}
        while True:
            error, more = self.fetch(stream, offset, index)
            assert error is ErrorCode.none, error
            if not more:
                return found
            found |= more
            offset = max(found) + 1


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of one GET."""
    with closing(http.client.HTTPConnection(address, timeout=WAIT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def metric(address: str, name: str) -> float:
    """One number of /metrics; the name with its labels, as it stands there."""
    _, body = get(address, "/metrics")
    for line in body.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no metric {name} in:\n{body}")
