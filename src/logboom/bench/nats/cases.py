"""The loads: plain messages, messages with acks and a window, one message after the other."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from logboom.bench.baseline import small_syncs_us
from logboom.bench.histogram import histogram_of, summary
from logboom.bench.nats.contestants import Contestant
from logboom.bench.wire import BenchError

Sample = dict[str, Any]
_EVERY: Final = 500
_AHEAD_BYTES: Final = 32 << 20


class Case(ABC):
    """One load; `group` is the value of `--only` that selects it."""

    group: str
    name: str
    title: str

    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options of the load client."""

    def sample(self, said: dict[str, Any], directory: Path) -> Sample:
        """What is kept of what the load client says."""
        del directory
        return said

    def messages(self, said: dict[str, Any]) -> int:
        """How many messages were published."""
        return int(said["records"])

    def measure(self, contestant: Contestant, subject: str) -> Sample:
        """Take it once. Raises BenchError where the load failed, or messages are missing."""
        before, used, began = contestant.taken(), contestant.cpu_s(), time.perf_counter()
        said = contestant.nats.load("-stream", subject, *self.options(), *contestant.load_options())
        took_s, now = time.perf_counter() - began, contestant.cpu_s()
        count = self.messages(said)
        cpu = {f"{name}_cpu_s_per_million": round((now[name] - used[name]) / count * 1e6, 3) for name in now}
        after = contestant.taken()
        if after is not None and before is not None and after - before < count:
            raise BenchError(f"{count} messages were published, {after - before} were stored")
        cpu["cpu_s_per_million"] = round(sum(cpu.values()), 3)
        cpu["client_cpu_s_per_million"] = round(said.pop("client_cpu_s") / count * 1e6, 3)
        shares = {f"{name}_core_share": round((now[name] - used[name]) / took_s, 3) for name in now}
        return {**self.sample(said, contestant.directory), **cpu, **shares}


@dataclass
class Plain(Case):
    """Messages without acks. One of 500 asks for an answer, so that the publisher stays at most 32 MB ahead."""

    size: int
    seconds: float
    group = "plain"

    def __post_init__(self) -> None:
        self.name = f"plain-{self.size}"
        self.title = f"Plain messages of {self.size:,} B, of which one in {_EVERY} is acked"

    def options(self) -> tuple[str, ...]:
        ahead = max(2, min(64, _AHEAD_BYTES // (_EVERY * self.size)))
        return (
            *("-mode", "plain", "-size", str(self.size), "-seconds", str(self.seconds)),
            *("-every", str(_EVERY), "-ahead", str(ahead)),
        )


@dataclass
class Acked(Case):
    """Every message is acked, `window` may wait for that, each on a reply subject of its own. As `js.PublishAsync` does
    it, whose futures and timers take a third of all CPU time (`window` in natsload/subject.go)."""

    size: int
    window: int
    seconds: float
    group = "acked"

    def __post_init__(self) -> None:
        self.name = f"acked-{self.size}-{self.window}"
        self.title = f"Acked messages of {self.size:,} B, {self.window:,} in flight"

    def options(self) -> tuple[str, ...]:
        shape = ("-size", str(self.size), "-in-flight", str(self.window), "-seconds", str(self.seconds))
        return ("-mode", "window", *shape)


@dataclass
class Synchronous(Case):
    """The next message goes once the one before is acked; beside it pings of the server, and syncs of the disk."""

    size: int
    seconds: float
    group = "sync"

    def __post_init__(self) -> None:
        self.name = f"sync-{self.size}"
        self.title = f"One acked message of {self.size:,} B after the other"

    def options(self) -> tuple[str, ...]:
        return ("-mode", "sync", "-size", str(self.size), "-seconds", str(self.seconds))

    def messages(self, said: dict[str, Any]) -> int:
        return len(said["latencies_us"])

    def sample(self, said: dict[str, Any], directory: Path) -> Sample:
        syncs = small_syncs_us(directory, self.seconds / 2)
        parts = {"ack": said["latencies_us"], "ping": said["pings_us"], "fdatasync": syncs}
        return {name: summary(histogram_of(taken)) for name, taken in parts.items()}
