"""A nats-server beside the broker: found on this machine, started, and started again when it dies.

It keeps no data: a start of it is a matter of a tenth of a second. It gets a configuration of its own, one port on
which it stays through all its restarts, and it ends with this process. Knows processes; nothing of what is said to it.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.app.supervisor.child import Child, how_it_ended
from logboom.base.errors import LogboomError
from logboom.base.settings import join_address, split_address
from logboom.base.units import MIB
from logboom.host.tcp_ports import hold_free_port, hold_port, port_of

_PROGRAM: Final = "nats-server"
_ALSO_IN: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "~/go/bin")
"""Where packages and `go install` put it, on PATH or not."""
_READY_MAX_S: Final = 60.0
_POLL_S: Final = 0.02
_GREETING: Final = b"INFO "
_PENDING_MAX_BYTES: Final = 256 * MIB
"""What it keeps for a reader that lags, before it cuts that off: four times its own default."""
_WRITE_MAX_S: Final = 60
"""How long a reader may take for what it is sent in one piece, which after a burst is all that is kept for it. With the
10 s of its default a burst of 40 MB was cut off that a busy broker would have taken."""
_PING_S: Final = 10
_PINGS_MAX: Final = 2
"""A client that answers no pings is cut off. A frozen broker keeps its part of each queue until then, and by the
server's own defaults that is four minutes and more."""
_STOP_MAX_S: Final = 5.0
_PAUSE_MIN_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
_LIVED_S: Final = 10.0
"""Once it has run so long, the next pause is the shortest again."""
_LEVELS: Final = {"[WRN]": "warning", "[ERR]": "error", "[FTL]": "error"}
_SLOW_CONSUMER: Final = "Slow Consumer"


class NatsServerError(LogboomError):
    """No nats-server can be started."""


def find_nats_server() -> str:
    """Where the program is. Raises NatsServerError, which says how to get it."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *(str(Path(each).expanduser()) for each in _ALSO_IN)])
    found = shutil.which(_PROGRAM, path=path)
    if found is None:
        raise NatsServerError(
            "there is no nats-server on this machine: install it (`apt-get install nats-server`, or "
            "`go install github.com/nats-io/nats-server/v2@v2.15.2`), or name a server with --nats nats://HOST:4222"
        )
    return found


class EmbeddedNats:
    """Life: `start`, `stop`, once each, on one loop."""

    def __init__(self, listen: str, config_file: Path, log: FilteringBoundLogger) -> None:
        """`listen`: HOST:PORT, port 0 for a free one."""
        self._listen = listen
        self._config_file = config_file
        self._log = log
        self._child: Child | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._address = ("", 0)
        self._held: socket.socket | None = None
        """Keeps the port also before it listens and while it is down."""
        self.restarts = 0
        self.slow_consumers = 0
        """How often it has said that it cut off a client which did not read."""
        self.on_slow_consumer: Callable[[str], None] = lambda line: None
        """Called with what it says of such a client."""

    @property
    def url(self) -> str:
        """Where clients connect, once started."""
        return f"nats://{join_address(*self._address)}"

    @property
    def pid(self) -> int | None:
        """Its process id; None while it does not run."""
        return None if self._child is None or not self._child.running else self._child.pid

    async def start(self) -> None:
        """Start it and keep it running. Raises NatsServerError or OSError where it does not come up."""
        program = find_nats_server()
        host, port = split_address(self._listen)
        try:
            self._held = hold_port(host, port) if port else hold_free_port(host)
        except OSError:
            raise NatsServerError(
                f"nats-server cannot listen on {self._listen}, which another program has: nats.embedded_listen names "
                "another port, --nats nats://HOST:PORT takes from a server that runs already"
            ) from None
        self._address = host or "127.0.0.1", port_of(self._held)
        self._config_file.parent.mkdir(parents=True, exist_ok=True)
        self._config_file.write_text(_configuration(join_address(host or "0.0.0.0", self._address[1])))  # noqa: S104
        command = [program, "-c", str(self._config_file)]
        await self._start_child(command)
        self._keeper = asyncio.create_task(self._keep_running(command))

    async def stop(self) -> None:
        """End it. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._child is not None:
            await self._end(self._child)
        if self._held is not None:
            self._held.close()

    async def _start_child(self, command: list[str]) -> None:
        last_line = ""

        def log_line(line: str) -> None:
            nonlocal last_line
            last_line = line
            self._log_line(line)

        child = self._child = Child.start(command, log_line)
        deadline = time.monotonic() + _READY_MAX_S
        while not await _greets(*self._address):
            if not child.running:
                raise NatsServerError(f"nats-server {how_it_ended(await child.ended)}: {last_line}")
            if time.monotonic() > deadline:
                await self._end(child)
                raise NatsServerError(f"nats-server does not answer at {self.url} after {_READY_MAX_S:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def _keep_running(self, command: list[str]) -> None:
        pause_s = _PAUSE_MIN_S
        while True:
            assert self._child is not None
            began = time.monotonic()
            code = await asyncio.shield(self._child.ended)
            pause_s = _PAUSE_MIN_S if time.monotonic() - began > _LIVED_S else pause_s
            self._log.error("nats-server has ended and is started again", how=how_it_ended(code), seconds=pause_s)
            self.restarts += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            try:
                await self._start_child(command)
            except (NatsServerError, OSError) as error:
                self._log.error("nats-server did not start", reason=str(error))

    @staticmethod
    async def _end(child: Child) -> None:
        child.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(asyncio.shield(child.ended), _STOP_MAX_S)
        except TimeoutError:
            child.signal(signal.SIGKILL)
            await child.ended

    def _log_line(self, line: str) -> None:
        """A line of its log: what is no warning is for whoever looks for faults."""
        level = next((level for mark, level in _LEVELS.items() if mark in line), "debug")
        if _SLOW_CONSUMER in line:
            level = "warning"
            self.slow_consumers += 1
            self.on_slow_consumer(line)
        getattr(self._log, level)("nats-server", line=line)


def _configuration(listen: str) -> str:
    return (
        "# Rewritten at each start of Logboom, which runs this server; change nothing here.\n"
        f"listen: {json.dumps(listen)}\n"
        f"max_payload: {MIB}\n"
        f"max_pending: {_PENDING_MAX_BYTES}\n"
        f'write_deadline: "{_WRITE_MAX_S}s"\n'
        f'ping_interval: "{_PING_S}s"\n'
        f"ping_max: {_PINGS_MAX}\n"
    )


async def _greets(host: str, port: int) -> bool:
    """Whether a server of NATS answers there."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    try:
        return (await asyncio.wait_for(reader.read(len(_GREETING)), 1.0)).startswith(_GREETING)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
