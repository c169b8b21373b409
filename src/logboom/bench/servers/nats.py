"""nats-server with JetStream in files, and the load client for it, a small Go program beside this file.

The load comes from the Go client, the one the NATS project measures with: a Python client would be the limit.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from logboom.bench.servers.jars import cache_root
from logboom.bench.servers.probe import nats_answers
from logboom.bench.servers.process import Server, UnavailableError, free_port
from logboom.bench.wire import BenchError

NATS_VERSION: Final = "v2.15.2"
_MODULE: Final = "github.com/nats-io/nats-server/v2"
_LOAD: Final = Path(__file__).with_name("natsload")
_BUILD_TIMEOUT_S: Final = 900
_OLDEST: Final = (2, 10)
"""The first version that knows `sync_interval: always`."""
_PENDING: Final = {"max_pending": "256MB", "write_deadline": '"60s"'}


class NatsServer(Server):
    """One nats-server; `sync` is JetStream's `sync_interval`: `2m` as it ships, or `always`; None is without JetStream.

    What it keeps for a client that lags is bounded as by the server that `serve --nats embedded` starts.
    """

    def __init__(self, directory: Path, sync: str | None = "2m", lines: Sequence[str] = ()) -> None:
        """`lines`: of its configuration, beside its own."""
        super().__init__(directory)
        self.name = "nats" if sync != "always" else "nats-always"
        self._sync = sync
        self._config = self.directory / "nats.conf"
        self._monitor_port = free_port()
        self._lines = lines
        self._program = ""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        """Where clients of NATS connect."""
        return f"nats://{self.address}"

    def version(self) -> str:
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, timeout=30, check=False)
        return said.stdout.strip()

    def settings(self) -> dict[str, object]:
        kept = {} if self._sync is None else {"jetstream.sync_interval": self._sync}
        return {**kept, "max_payload": "2MB", **_PENDING, "client": "nats.go"}

    def prepare(self) -> None:
        self._program = nats_server()
        load_program()
        listens = (f"listen: {self.address}", f"http: 127.0.0.1:{self._monitor_port}", "max_payload: 2097152")
        lines = [*listens, *(f"{name}: {value}" for name, value in _PENDING.items()), *self._lines]
        if self._sync is not None:
            store = f"store_dir: {json.dumps(str(self.data))}, sync_interval: {self._sync}, max_file_store: 60GB"
            lines.append(f"jetstream: {{{store}}}")
        self._config.write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [self._program, "-c", str(self._config)]

    def answers(self) -> bool:
        return nats_answers(self.port, with_jetstream=self._sync is not None)

    def subscriptions(self) -> int:
        """How many subscriptions its clients have."""
        with urlopen(f"http://127.0.0.1:{self._monitor_port}/connz", timeout=30) as answer:
            connections = json.load(answer)["connections"]
        return sum(int(one["subscriptions"]) for one in connections)

    def load(self, *arguments: str, timeout_s: float = 600) -> dict[str, Any]:
        """Run the load client against this server; its measurements. BenchError where it fails."""
        command = [str(load_program()), "-url", f"nats://{self.address}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise BenchError(f"the NATS load client failed: {done.stderr.strip()[-300:]}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def nats_server() -> str:
    """The program: from PATH where it is new enough, else built once by Go from its module; UnavailableError where
    neither can be."""
    found = shutil.which("nats-server")
    if found is not None and _version(found) >= _OLDEST:
        return found
    target = cache_root() / f"nats-server-{NATS_VERSION}"
    program = target / "nats-server"
    if not program.exists():
        _go(["install", f"{_MODULE}@{NATS_VERSION}"], cwd=None, GOBIN=str(target))
    return str(program)


def _version(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.search(r"v(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def load_program() -> Path:
    """The load client, built once for each change of its source."""
    sources = b"".join(path.read_bytes() for path in sorted(_LOAD.iterdir()))
    program = cache_root() / f"natsload-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not program.exists():
        _go(["build", "-o", str(program), "."], cwd=_LOAD)
    return program


def _go(arguments: list[str], cwd: Path | None, **environment: str) -> None:
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(
            "neither nats-server 2.10 or newer nor Go is here: install nats-server, or Go 1.26 to build it"
        )
    try:
        done = subprocess.run(
            [go, *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"go {arguments[0]} did not end within {_BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise UnavailableError(f"go {arguments[0]} failed: {done.stderr.strip()[-300:]}")
