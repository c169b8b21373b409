"""A server that speaks Amazon's S3 on a free port of 127.0.0.1, its objects files of a directory (S3Proxy)."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.clients.drivers import DriverMissingError, s3_server
from tests.support.foreign_server import ForeignServer
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

IDENTITY = {"AWS_ACCESS_KEY_ID": "test-id", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true"}
BUCKET = "logs"
_SECRET = "s3proxy.credential"


class S3Server(ForeignServer):
    """Knows the one identity; has the one bucket."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bucket = directory / "objects" / BUCKET
        self.bucket.mkdir(parents=True)
        self._settings = directory / "s3.properties"
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": IDENTITY["AWS_ACCESS_KEY_ID"],
            _SECRET: IDENTITY["AWS_SECRET_ACCESS_KEY"],
            "s3proxy.ignore-unknown-headers": "true",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "unused",
            "jclouds.credential": "unused",
            "jclouds.filesystem.basedir": str(directory / "objects"),
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    @property
    def endpoint(self) -> str:
        return self.url

    def expire(self, secret: str) -> None:
        """Knows the identity by another secret from now on."""
        self.kill9()
        settings = self._settings.read_text().splitlines()
        told = [line for line in settings if not line.startswith(_SECRET)]
        self._settings.write_text("".join(f"{line}\n" for line in (*told, f"{_SECRET}={secret}")))
        self.start()

    def hang(self) -> None:
        """Takes connections, and answers nothing until `go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _command(self) -> list[str]:
        return [*s3_server(), "--properties", str(self._settings)]

    def _is_ready(self) -> bool:
        """It takes connections; nothing of it can be had without a signature."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S).close()
        except OSError:
            return False
        return True


@contextmanager
def running_s3(directory: Path) -> Iterator[S3Server]:
    """A server over a new directory below this one; skips the test where it cannot be had."""
    with ExitStack() as stack:
        with skipped_on(DriverMissingError):
            server = stack.enter_context(S3Server(directory / "s3"))
        yield server
