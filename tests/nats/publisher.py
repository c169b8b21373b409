"""Publishers that publish again until each message is acked, and know then what has to be in the log."""

import asyncio
from collections import Counter
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import PubAck
from tests.nats.servers import stored
from tests.support.waiting import WAIT_S

NOT_NOW = (nats.errors.Error, nats.js.errors.Error, OSError)
"""What a client raises while a server or a broker is away."""

Key = TypeVar("Key", bound=Hashable)


class RetryingPublisher(Generic[Key]):
    """What such publishers share: messages by key, each published until it is acked, until it is told to end."""

    def __init__(self, client: Client) -> None:
        self._jetstream = client.jetstream()
        self._next = 0
        self._ending = False
        self.acked: dict[Key, Any] = {}
        """What each message was acked with."""
        self.tried_again: Counter[Key] = Counter()
        """How often each was published again."""

    def end(self) -> None:
        """Begin no other message."""
        self._ending = True

    async def after(self, count: int) -> None:
        """Return once so many more are acked."""
        wanted = len(self.acked) + count
        async with asyncio.timeout(2 * WAIT_S):
            while len(self.acked) < wanted:
                await asyncio.sleep(0.01)

    async def _until_acked(self, key: Key, subject: str, payload: bytes, message_id: str) -> PubAck:
        while True:
            try:
                return await self._jetstream.publish(subject, payload, timeout=1, headers={"Nats-Msg-Id": message_id})
            except NOT_NOW:
                self.tried_again[key] += 1
                await asyncio.sleep(0.05)


class Publisher(RetryingPublisher[int]):
    """Publishes numbers with ids, some at a time; `acked` has the sequence of each."""

    def __init__(
        self, client: Client, subject: str, padding: bytes = b"", *, name: str = "n", pause_s: float = 0.0
    ) -> None:
        """`padding`: behind each number; `name`: before it in the id, where there are several publishers; `pause_s`:
        behind each ack, for a load that does not grow with the machine."""
        super().__init__(client)
        self._padding = padding
        self._pause_s = pause_s
        self._name = name
        self._subject = subject

    async def run(self) -> None:
        """Publish, eight at a time."""
        await asyncio.gather(*(self._publish() for _ in range(8)))

    async def _publish(self) -> None:
        while not self._ending:
            number, self._next = self._next, self._next + 1
            ack = await self._until_acked(number, self._subject, self._payload(number), f"{self._name}{number}")
            self.acked[number] = ack.seq
            await asyncio.sleep(self._pause_s)

    def _payload(self, number: int) -> bytes:
        return b"%d " % number + self._padding

    def check(self, bootstrap: str, stream: str) -> None:
        """Every acked message is in the log at its sequence, and no message is there twice."""
        records = stored(bootstrap, stream, max(self.acked.values()))
        for number, sequence in self.acked.items():
            assert records[sequence - 1].value == self._payload(number)
        ids = Counter(value for one in records for value in one.header("Nats-Msg-Id"))
        assert set(ids.values()) == {1}
