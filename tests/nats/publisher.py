"""A publisher that publishes again until each message is acked, and knows then what has to be in the log."""

import asyncio
from collections import Counter

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from tests.nats.servers import stored
from tests.support.waiting import WAIT_S

_NOT_NOW = (nats.errors.Error, nats.js.errors.Error, OSError)


class Publisher:
    """Publishes numbers with ids, each until it is acked, some at a time, until it is told to end."""

    def __init__(
        self, client: Client, subject: str, padding: bytes = b"", *, name: str = "n", pause_s: float = 0.0
    ) -> None:
        """`padding`: behind each number; `name`: before it in the id, where there are several publishers; `pause_s`:
        behind each ack, for a load that does not grow with the machine."""
        self._padding = padding
        self._pause_s = pause_s
        self._name = name
        self._jetstream = client.jetstream()
        self._subject = subject
        self._next = 0
        self._ending = False
        self.acked: dict[int, int] = {}
        """The sequence that each number was acked with."""
        self.tried_again = 0

    async def run(self) -> None:
        """Publish, eight at a time."""
        await asyncio.gather(*(self._publish() for _ in range(8)))

    def end(self) -> None:
        """Begin no other number."""
        self._ending = True

    async def after(self, count: int) -> None:
        """Return once so many more are acked."""
        wanted = len(self.acked) + count
        async with asyncio.timeout(2 * WAIT_S):
            while len(self.acked) < wanted:
                await asyncio.sleep(0.01)

    async def _publish(self) -> None:
        while not self._ending:
            number, self._next = self._next, self._next + 1
            while number not in self.acked:
                try:
                    ack = await self._jetstream.publish(
                        self._subject,
                        self._payload(number),
                        timeout=1,
                        headers={"Nats-Msg-Id": f"{self._name}{number}"},
                    )
                except _NOT_NOW:
                    self.tried_again += 1
                    await asyncio.sleep(0.05)
                else:
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
