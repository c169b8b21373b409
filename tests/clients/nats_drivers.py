"""Clients of NATS that nobody here wrote, each behind a program in the client's own language.

A program takes the address of a nats-server, reads a list of orders on its standard input as JSON, carries them out one
after the other with its client's own calls, and prints for each what the client said, as one line of JSON:

    {"via": "plain", "subject": ..., "payload": base64}      published, and no answer waited for: {}
    {"via": "ack", ...}                                      with the client's JetStream call, which waits for the ack
    {"via": "window", ...}                                   with its asynchronous one; others follow before the ack
    {"via": "info", "stream": ...}                           what it says of a stream, as programs ask at their start

`headers` are pairs of names and values; `id`, `stream`, `last_seq` and `last_id` become the client's options for the
id of the message and for what is expected. An ack is {"stream", "seq", "duplicate"}, an error {"err_code", "failed"}.
"""

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.clients.drivers import BUILD, DriverMissingError, build, go_program, java_program, need
from tests.support.waiting import WAIT_S

SOURCES = Path(__file__).parent / "nats"


@dataclass(frozen=True)
class NatsDriver:
    """A client: how its program is run, before the server's address."""

    name: str
    command: Callable[[], list[str]]
    arguments: tuple[str, ...] = ()
    """Behind the server's address."""
    repeats_headers: bool = True
    """Whether its headers hold more than one value for a name."""
    headers_in_any_script: bool = True
    """Whether it lets a header's value be other than ASCII."""
    tells_async_refusals: bool = True
    """Whether the publisher of a window learns of an error; nats-py 2.16 leaves that call without an end."""

    def publish(self, url: str, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Carry out orders; what the client said of each. Raises DriverMissingError."""
        command = [*self.command(), url, *self.arguments]
        given = json.dumps(list(orders))
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(told) == len(orders), f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return told


def order(via: str, subject: str = "", payload: bytes = b"", **also: Any) -> dict[str, Any]:
    """One order; see the module."""
    return {"via": via, "subject": subject, "payload": base64.b64encode(payload).decode(), **also}


@cache
def _javascript() -> list[str]:
    need("node", "nodejs")
    need("npm", "npm")
    sources, built = SOURCES / "js", BUILD / "nats" / "js"
    built.mkdir(parents=True, exist_ok=True)
    wanted, installed = sources / "package.json", built / "installed.json"
    for file in sources.iterdir():
        shutil.copy(file, built)  # a module finds others in the directories above its own
    if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
        build(["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"], built)
        shutil.copy(wanted, installed)
    return ["node", str(built / "publish.js")]


@cache
def _java() -> list[str]:
    return java_program(SOURCES / "java", "jnats", "Publish")


@cache
def _go() -> list[str]:
    return go_program(SOURCES / "go", "publish")


def _python() -> list[str]:
    return [sys.executable, str(SOURCES / "python" / "publish.py")]


NATS_DRIVERS = (
    NatsDriver("nats-py", _python, repeats_headers=False, tells_async_refusals=False),
    NatsDriver("nats-js", _javascript),
    NatsDriver("jnats", _java, headers_in_any_script=False),
    NatsDriver("nats-go", _go, ("legacy",)),
    NatsDriver("nats-go-jetstream", _go, ("current",)),
)
"""The last two are the two packages of nats.go: `nc.JetStream()`, and `jetstream.New()`."""

__all__ = ["NATS_DRIVERS", "DriverMissingError", "NatsDriver", "order"]
