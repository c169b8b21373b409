"""nats-server with JetStream in files, and the load client for it, a small Go program beside this file.

The load comes from the Go client, the one the NATS project measures with: a Python client would be the limit.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from logboom.bench.servers.jars import cache_root
from logboom.bench.servers.probe import nats_answers
from logboom.bench.servers.process import Server, UnavailableError
from logboom.bench.wire import BenchError

NATS_VERSION: Final = "v2.15.2"
_MODULE: Final = "github.com/nats-io/nats-server/v2"
_LOAD: Final = Path(__file__).with_name("natsload")
_BUILD_TIMEOUT_S: Final = 900


class NatsServer(Server):
    """One nats-server; `sync` is JetStream's `sync_interval`: `2m` as it ships, or `always`."""

    def __init__(self, directory: Path, sync: str = "2m") -> None:
        super().__init__(directory)
        self.name = "nats" if sync != "always" else "nats-always"
        self._sync = sync
        self._config = self.directory / "nats.conf"
        self._program = ""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def version(self) -> str:
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, timeout=30, check=False)
        return said.stdout.strip()

    def settings(self) -> dict[str, object]:
        return {"jetstream.sync_interval": self._sync, "max_payload": "2MB", "client": "nats.go"}

    def prepare(self) -> None:
        self._program = nats_server()
        load_program()
        store = f"store_dir: {json.dumps(str(self.data))}, sync_interval: {self._sync}, max_file_store: 60GB"
        self._config.write_text(f"listen: {self.address}\nmax_payload: 2097152\njetstream: {{{store}}}\n")

    def command(self) -> list[str]:
        return [self._program, "-c", str(self._config)]

    def answers(self) -> bool:
        return nats_answers(self.port)

    def load(self, *arguments: str, timeout_s: float = 600) -> dict[str, Any]:
        """Run the load client against this server; its measurements."""
        command = [str(load_program()), "-url", f"nats://{self.address}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise BenchError(f"the NATS load client failed: {done.stderr.strip()[-300:]}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def nats_server() -> str:
    """The program: from PATH, else built once by Go from its module; UnavailableError where neither can be."""
    found = shutil.which("nats-server")
    if found is not None:
        return found
    target = cache_root() / f"nats-server-{NATS_VERSION}"
    program = target / "nats-server"
    if not program.exists():
        _go(["install", f"{_MODULE}@{NATS_VERSION}"], cwd=None, GOBIN=str(target))
    return str(program)


def load_program() -> Path:
    """The load client, built once for each change of its source."""
    sources = b"".join((_LOAD / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    program = cache_root() / f"natsload-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not program.exists():
        _go(["build", "-o", str(program), "."], cwd=_LOAD)
    return program


def _go(arguments: list[str], cwd: Path | None, **environment: str) -> None:
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(
            "neither nats-server nor Go is here: install nats-server, or Go 1.24 or newer to build it"
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
