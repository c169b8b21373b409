"""A PostgreSQL server of its own, whose changes can be read by logical decoding (`wal_level=logical`)."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.server import free_port
from tests.support.waiting import WAIT_S

STATEMENT_TIMEOUT_S = 60
DATABASE = "postgres"
USER = "postgres"
TOLD = "-- told --"


class PostgresMissingError(Exception):
    """There is no PostgreSQL server on this machine; the text says how to get it."""


class PostgresError(Exception):
    """The server did not start, or a session of it ended; the text has what it said last."""


class PostgresServer:
    """A server on a free port of 127.0.0.1, whose superuser `postgres` needs no password there.

    It does not sync what it writes, and its files are removed at the end. PostgreSQL refuses to run as root: there it
    runs as the system's user `postgres` or `nobody`.
    """

    def __init__(self) -> None:
        self._programs, self._user = _programs(), _unprivileged_user()
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="logboom-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def session(self) -> "Session":
        """A new connection."""
        return Session([str(self._programs / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, DATABASE])

    @property
    def pid(self) -> int:
        """Of the process that starts all others."""
        assert self._process is not None
        return self._process.pid

    def crash(self) -> None:
        """Ends the server as a crash does: every connection breaks, and the next start has to recover."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(WAIT_S)

    def start_again(self) -> None:
        """After a crash."""
        self._serve()

    def authenticate(self, role: str) -> None:
        """Asks this role for its password from now on (`pg_hba.conf`)."""
        path = self._directory / "data" / "pg_hba.conf"
        path.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{path.read_text()}")
        with self.session() as session:
            session.run("SELECT pg_reload_conf()")

    def _start(self) -> None:
        if self._user is not None:
            shutil.chown(self._directory, self._user, pwd.getpwnam(self._user).pw_gid)
        data = str(self._directory / "data")
        plain = ["--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = self._run("initdb", "-D", data, *plain)
        if made.wait(WAIT_S) != 0:
            raise PostgresError(self._log())
        self._serve()

    def _serve(self) -> None:
        data = str(self._directory / "data")
        settings = {"wal_level": "logical", "fsync": "off", "unix_socket_directories": "", "autovacuum": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = self._run("postgres", "-D", data, "-h", "127.0.0.1", "-p", str(self.port), *options)
        deadline = time.monotonic() + WAIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PostgresError(self._log())
            time.sleep(0.1)

    def _answers(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, timeout=WAIT_S, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / program), *arguments],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
            )

    def _log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-2_000:]

    def _stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # waits for no session
            self._process.wait(WAIT_S)
        shutil.rmtree(self._directory)


class Session:
    """One connection, by psql; statements run in the order in which they are given."""

    def __init__(self, command: list[str]) -> None:
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        self._psql = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._psql.kill()
        self._psql.communicate()

    def run(self, statements: str) -> str:
        """What they print, rows as lines and columns parted by `|`.

        :raises PostgresError: one failed; the session is over then.
        """
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        self._psql.stdin.write(f"{statements.rstrip().rstrip(';')};\n\\echo {TOLD}\n")
        watchdog = threading.Timer(STATEMENT_TIMEOUT_S, self._psql.kill)
        watchdog.start()
        try:
            self._psql.stdin.flush()
            lines = list[str]()
            while (line := self._psql.stdout.readline()) != f"{TOLD}\n":
                lines.append(line)
                if not line:
                    raise PostgresError("".join(lines) + f" (after: {statements[-500:]})")
        finally:
            watchdog.cancel()
        return "".join(lines).removesuffix("\n")


def _programs() -> Path:
    """The directory of the server's programs: Debian keeps those of each version in one of its own."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not versions:
        raise PostgresMissingError("no PostgreSQL server is here: apt-get install postgresql")
    return versions[-1].parent


def _unprivileged_user() -> str | None:
    """The user to run the server as, where this is root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise PostgresMissingError("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
