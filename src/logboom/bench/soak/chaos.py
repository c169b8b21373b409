"""Restarts during a soak: SIGTERM and kill -9 in turns, each followed by a start on the same data."""

import random
import threading
import time
from dataclasses import dataclass, field

from logboom.bench.servers import Server
from logboom.bench.soak.ledger import Ledger
from logboom.bench.soak.load import SoakLoad

LOOK_EVERY_S = 0.5


@dataclass
class Restarts:
    """One restart: when (seconds since the start), by which signal, and seconds until the new process served."""

    at_s: dict[str, list[float]] = field(default_factory=lambda: {"SIGTERM": [], "kill -9": []})
    took_s: list[float] = field(default_factory=list)


def restart_at_times(server: Server, load: SoakLoad, ledger: Ledger, restarts: Restarts, stop: threading.Event) -> None:
    """Thread: stop and start the broker at the load's interval; an exit that was not requested is a fault.

    Everything stops with such an end: there is no use in load on a broker that is gone.
    """
    rng = random.Random(load.seed)  # noqa: S311 - when to kill is not a secret
    began = time.monotonic()
    next_s, gently = rng.uniform(0.5, 1.0) * load.restart_every_s, False
    while not stop.wait(LOOK_EVERY_S):
        if not server.running:
            ledger.fault("the broker ended by itself")
            stop.set()
            return
        now_s = time.monotonic() - began
        if now_s >= next_s and now_s < load.last_restart_s:
            _restart(server, gently, ledger, restarts, now_s)
            gently = not gently
            next_s = now_s + rng.uniform(0.7, 1.3) * load.restart_every_s


def _restart(server: Server, gently: bool, ledger: Ledger, restarts: Restarts, now_s: float) -> None:
    restarts.at_s["SIGTERM" if gently else "kill -9"].append(round(now_s, 1))
    if gently:
        server.stop()
        if server.exit_code != 0:
            ledger.fault(f"SIGTERM ended the broker with {server.exit_code} instead of 0")
    else:
        server.kill9()
    restarts.took_s.append(round(server.start(), 3))
