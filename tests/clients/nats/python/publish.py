"""Publishes on NATS what it is told on its standard input, with nats-py; see tests/clients/nats_drivers.py."""

import asyncio
import base64
import json
import sys
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

import nats

WAIT_S = 30
WINDOW = 256


def headers_of(order: dict[str, Any]) -> dict[str, str] | None:
    """This client keeps one value for a name."""
    found = dict(order.get("headers", ()))
    if order.get("id"):
        found["Nats-Msg-Id"] = order["id"]
    if "last_seq" in order:
        found["Nats-Expected-Last-Sequence"] = str(order["last_seq"])
    if order.get("last_id"):
        found["Nats-Expected-Last-Msg-Id"] = order["last_id"]
    return found or None


def told(ack: nats.js.api.PubAck) -> dict[str, Any]:
    """What the others print of an ack."""
    return {"stream": ack.stream, "seq": ack.seq, **({"duplicate": True} if ack.duplicate else {})}


def refused(error: Exception) -> dict[str, Any]:
    """What the others print of an error."""
    if isinstance(error, nats.js.errors.APIError) and error.err_code:
        return {"err_code": error.err_code, "failed": error.description}
    return {"failed": str(error) or type(error).__name__}


async def done(client: Client, stream: JetStreamContext, order: dict[str, Any]) -> dict[str, Any]:
    """Do what one order says, and wait for the answer."""
    payload = base64.b64decode(order.get("payload", ""))
    try:
        if order["via"] == "plain":
            await client.publish(order["subject"], payload, headers=headers_of(order))
            return {}
        if order["via"] == "info":
            await stream.stream_info(order["stream"])
            return {}
        headers = headers_of(order)
        return told(
            await stream.publish(order["subject"], payload, timeout=WAIT_S, stream=order.get("stream"), headers=headers)
        )
    except (TimeoutError, nats.errors.Error) as error:
        return refused(error)


async def main() -> None:
    client = await nats.connect(sys.argv[1])
    stream = client.jetstream(publish_async_max_pending=WINDOW)
    begun: list[asyncio.Future[nats.js.api.PubAck]] = []

    async def finish() -> None:
        for answer in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(answer, BaseException):
                assert isinstance(answer, Exception)
                print(json.dumps(refused(answer)))
            else:
                print(json.dumps(told(answer)))
        begun.clear()

    for order in json.load(sys.stdin):
        if order["via"] == "window":
            payload = base64.b64decode(order.get("payload", ""))
            sent = stream.publish_async(
                order["subject"], payload, stream=order.get("stream"), headers=headers_of(order)
            )
            begun.append(await sent)
        else:
            await finish()
            print(json.dumps(await done(client, stream, order)))
    await finish()
    await client.flush()
    await client.close()


asyncio.run(main())
