"""A client of the HTTP server: a scraper and a health check, and what else comes to such a port.

It asks for metrics and health, sends garbage, sends slowly, opens connections and says nothing on them, hangs up in the
middle. Whatever goes wrong with the disk, each connection must be answered whole, refused or closed within the server's
own limit of time; `/healthz` must say that the broker's loop answers; and metrics must know of all that was
acknowledged before they were asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from logboom.base.ids import Offset
from logboom.sim.client import TopicPartition
from logboom.sim.history import History
from logboom.sim.session import Phase

REQUEST_TIMEOUT_S: Final = 2.0
CONNECTIONS_MAX: Final = 6
HTTP_CONFIG: Final[Mapping[str, object]] = {
    "request_timeout_s": REQUEST_TIMEOUT_S,
    "max_connections": CONNECTIONS_MAX,
}
"""Settings of the server under which a run of seconds meets both limits."""

_GRACE_S: Final = 0.5
"""How much later than its limit a connection may end: what the network takes, and a write on the broker's loop."""
_PAUSE_MAX_S: Final = 0.4
_GARBAGE_STATUSES: Final = frozenset((400, 405, 414, 431, 505))
_HIGH_WATERMARK: Final = "logboom_partition_high_watermark"
_OFFLINE: Final = "logboom_partition_offline"
_LOG_START: Final = "logboom_partition_log_start_offset"
_LOOKED_AT: Final = (_HIGH_WATERMARK, _OFFLINE, _LOG_START)


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """A whole response."""

    status: int
    body: bytes


class Prober:
    """Asks until the phase ends, and writes down what was wrong."""

    def __init__(self, address: tuple[str, int], history: History, phase: Phase, chance: Random) -> None:
        self.scrapes = 0
        """Scrapes that were answered and checked."""
        self._address = address
        self._history = history
        self._phase = phase
        self._chance = chance

    async def run(self) -> None:
        """Probe until the phase ends."""
        probes: Sequence[Callable[[], Awaitable[None]]] = (
            # More often than the others, the silent ones of which last until the server closes them.
            *(self._scrape,) * 4,
            self._check_health,
            self._check_readiness,
            self._send_garbage,
            self._send_slowly,
            self._stay_silent,
            self._hang_up,
        )
        while self._phase.consuming:
            await asyncio.sleep(self._chance.uniform(0, _PAUSE_MAX_S))
            await self._chance.choice(probes)()

    async def check_at_peace(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """Where nothing is wrong and nobody writes, the server says so, and metrics have these high-water marks."""
        for path, expected in (("/healthz", b"ok\n"), ("/readyz", b"ready\n")):
            if (answer := await self._get(path)) != ProbeResponse(200, expected):
                self._history.violated(f"at peace {path} gave {answer}")
        marks = _offsets(await self._get("/metrics"))[_HIGH_WATERMARK]
        for where, end in ends.items():
            if marks.get(where) != end:
                self._history.violated(f"metrics have {marks.get(where)} for the high-water mark {end} of {where}")

    async def _scrape(self) -> None:
        ends, starts = dict(self._history.acked_ends), dict(self._history.starts)
        answer = await self._get("/metrics")
        if answer is None:
            return
        if answer.status != 200:
            self._history.violated(f"/metrics gave {answer.status}: {answer.body!r}")
            return
        self.scrapes += 1
        told = _offsets(answer)
        offline = told[_OFFLINE]
        for name, least in ((_HIGH_WATERMARK, ends), (_LOG_START, starts)):
            # There is nothing of the broker before it has recovered. Where a log dir fails between a sync and the note
            # of it, acks=1 is answered, since the records are durable; the mark follows at the next start, and the
            # partition is offline until then.
            for where, offset in told[name].items():
                if offset < least.get(where, 0) and not offline.get(where):
                    self._history.violated(f"{name} of {where} is {offset}, after clients were told of {least[where]}")

    async def _check_health(self) -> None:
        if (answer := await self._get("/healthz")) not in (None, ProbeResponse(200, b"ok\n")):
            self._history.violated(f"/healthz gave {answer}")

    async def _check_readiness(self) -> None:
        answer = await self._get("/readyz")
        if answer in (None, ProbeResponse(200, b"ready\n")):
            return
        if answer.status != 503 or len(answer.body) < 2:
            self._history.violated(f"/readyz gave {answer}")

    async def _get(self, path: str) -> ProbeResponse | None:
        return await self._exchange([b"GET %s HTTP/1.1\r\nHost: n\r\n\r\n" % path.encode()])

    async def _send_garbage(self) -> None:
        data = self._chance.randbytes(self._chance.randint(1, 200)) + b"\r\n\r\n"
        answer = await self._exchange([data])
        if answer is not None and answer.status not in _GARBAGE_STATUSES:
            self._history.violated(f"garbage was answered with {answer}")

    async def _send_slowly(self) -> None:
        """A request in pieces, which now and then come too late."""
        request = b"GET /healthz HTTP/1.0\r\n\r\n"
        pause_max_s = self._chance.choice((0.01, 0.2))
        answer = await self._exchange([request[at : at + 1] for at in range(len(request))], pause_max_s)
        if answer not in (None, ProbeResponse(200, b"ok\n")):
            self._history.violated(f"a slow /healthz gave {answer}")

    async def _stay_silent(self) -> None:
        """Connections without a whole request, now and then more of them than the server takes."""
        count = self._chance.randint(1, CONNECTIONS_MAX + 2)
        answers = await asyncio.gather(*(self._exchange([b"GET /metr"]) for _ in range(count)))
        if any(answer is not None for answer in answers):
            self._history.violated(f"half a request was answered with {answers}")

    async def _hang_up(self) -> None:
        """Ask, and be gone before the answer."""
        try:
            _, writer = await asyncio.open_connection(*self._address)
        except OSError:
            return
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(self._chance.uniform(0, 0.01))
        writer.transport.abort()

    async def _exchange(self, pieces: Sequence[bytes], pause_max_s: float = 0.0) -> ProbeResponse | None:
        """Send the pieces and read to the end of the connection. None where it broke or ended without an answer.

        A connection that is open after the server's limit of time is a violation.
        """
        try:
            reader, writer = await asyncio.open_connection(*self._address)
        except OSError:
            return None
        sending = asyncio.ensure_future(self._send(writer, pieces, pause_max_s))
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S + _GRACE_S):
                return self._answer_of(await reader.read())
        except TimeoutError:
            self._history.violated(f"a connection was neither answered nor closed: {pieces[0]!r}")
            return None
        except OSError:
            return None
        finally:
            sending.cancel()
            writer.transport.abort()

    async def _send(self, writer: asyncio.StreamWriter, pieces: Sequence[bytes], pause_max_s: float) -> None:
        for piece in pieces:
            writer.write(piece)
            if pause_max_s:
                await asyncio.sleep(self._chance.uniform(0, pause_max_s))

    def _answer_of(self, data: bytes) -> ProbeResponse | None:
        if not data:
            return None
        head, blank, body = data.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        if not blank or int(headers["Content-Length"]) != len(body):
            self._history.violated(f"a response ended in the middle: {status_line} and {len(body)} bytes")
            return None
        return ProbeResponse(int(status_line.split()[1]), body)


def _offsets(answer: ProbeResponse | None) -> dict[str, dict[TopicPartition, Offset]]:
    """The values by partition of each metric that is looked at."""
    found: dict[str, dict[TopicPartition, Offset]] = {name: {} for name in _LOOKED_AT}
    if answer is None:
        return found
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            if sample.name in found:
                where = TopicPartition(sample.labels["stream"], int(sample.labels["partition"]))
                found[sample.name][where] = Offset(int(sample.value))
    return found
