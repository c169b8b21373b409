"""A subscriber that does nothing: it takes what a Python process can take of NATS, and answers whoever asks for that.

`python -m logboom.bench.nats.subscriber HOW PORT SUBJECT`, with HOW `split`, the reader that a broker has, or
`nats-py`, the client library of the NATS project.
"""

import asyncio
import sys
from typing import Final, cast

import uvloop

from logboom.host import keep_buffers
from logboom.nats.link import commands
from logboom.nats.link.frames import Alike, FrameReader, Ping

_ANSWER: Final = b'{"stream":"none","seq":1}'


class _Splitter(asyncio.Protocol):
    """Splits what arrives into messages, as `nats.link` does, and lets go of them."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        options = {"verbose": False, "pedantic": False, "headers": True, "protocol": 1}
        self._transport.write(commands.connect(options) + commands.subscribe(1, self._subject, None))

    def data_received(self, data: bytes) -> None:
        answers = []
        for event in self._reader.feed(data):
            if isinstance(event, Alike):
                answers += [commands.publish(reply, _ANSWER) for reply in event.replies if reply]
            elif isinstance(event, list):
                answers += [commands.publish(one.reply, _ANSWER) for one in event if one.reply]
            elif isinstance(event, Ping):
                answers.append(commands.PONG)
        if answers:
            self._transport.write(b"".join(answers))


async def _split(port: int, subject: str) -> None:
    await asyncio.get_running_loop().create_connection(lambda: _Splitter(subject), "127.0.0.1", port)
    await asyncio.Event().wait()


async def _with_library(port: int, subject: str) -> None:
    from nats.aio.msg import Msg

    import nats

    client = await nats.connect(f"nats://127.0.0.1:{port}")

    async def take(message: Msg) -> None:
        if message.reply:
            await client.publish(message.reply, _ANSWER)

    await client.subscribe(subject, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await asyncio.Event().wait()


if __name__ == "__main__":
    keep_buffers()
    how, port, subject = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if how == "split":
        uvloop.run(_split(port, subject))
    else:
        asyncio.run(_with_library(port, subject))
