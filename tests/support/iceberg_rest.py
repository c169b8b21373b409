"""Iceberg's own REST catalog on a free port of 127.0.0.1; its tables are directories, or objects of S3, its database is
a file."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.clients.drivers import iceberg_rest
from tests.support.s3 import BUCKET, IDENTITY, S3Server
from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until


class IcebergRest:
    """May be killed and started again on the same port, with what it had."""

    def __init__(self, directory: Path, s3: S3Server | None = None) -> None:
        self.port = free_port()
        self._directory = directory
        self._s3 = s3
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> IcebergRest:
        try:
            self.start()
        except BaseException:
            self.kill9()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    def start(self) -> None:
        settings = {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_WAREHOUSE": str(self._directory / "warehouse"),
            "CATALOG_URI": f"jdbc:sqlite:{self._directory / 'catalog.db'}",
        }
        if self._s3 is not None:
            settings |= {
                "CATALOG_WAREHOUSE": f"s3://{BUCKET}/lake",
                "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
                "CATALOG_S3_ENDPOINT": self._s3.endpoint,
                "CATALOG_S3_PATH__STYLE__ACCESS": "true",
                "AWS_REGION": "us-east-1",
                "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
                **IDENTITY,
            }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                iceberg_rest(), env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers)

    def kill9(self) -> None:
        """Ends it at once; what it has is on disk."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(WAIT_S)
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2_000:]
        try:
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=WAIT_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False
