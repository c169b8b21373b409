"""A connection on which several produce requests are under way: the broker answers them in their order."""

import asyncio
from collections import deque
from functools import partial
from typing import Any

from logboom.sim.client import ANSWER_S, PRODUCE, AskError, SimClient, TopicPartition, decoded, produce_fields

_ALL = -1


class PipelinedClient(SimClient):
    """Life: `connect`, then `begin_produce` any number of times, then `close`; it is of no further use once a request
    has failed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        super().__init__(reader, writer, client_id)
        self.is_usable = True
        self._unanswered: deque[tuple[int, asyncio.Future[Any], asyncio.TimerHandle]] = deque()
        self._reading = asyncio.ensure_future(self._read())

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return len(self._unanswered)

    def begin_produce(self, where: TopicPartition, batch: bytes) -> "asyncio.Future[Any]":
        """Send a batch with acks=all. What the broker says of it, or AskError where it says nothing: then all that are
        under way fail, since clients close a connection on which an answer is late."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._send(PRODUCE, produce_fields(where, batch, _ALL))
        timer = loop.call_later(ANSWER_S, partial(self._fail, TimeoutError()))
        self._unanswered.append((self._correlation, answer, timer))
        return answer

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 16):
                for correlation, body in self._frames.take(data):
                    expected, answer, timer = self._unanswered.popleft()
                    assert correlation == expected, "an answer to another request"
                    timer.cancel()
                    answer.set_result(decoded(PRODUCE, bytes(body)).responses[0].partition_responses[0])
        except OSError as error:
            self._fail(error)
        else:
            self._fail(ConnectionResetError("the broker closed the connection"))

    def _fail(self, error: Exception) -> None:
        if not self.is_usable:
            return
        self.is_usable = False
        self._writer.transport.abort()
        while self._unanswered:
            _, answer, timer = self._unanswered.popleft()
            timer.cancel()
            answer.set_exception(AskError(f"no answer: {error!r}"))
