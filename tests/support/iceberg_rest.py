"""Iceberg's own REST catalog on a free port of 127.0.0.1; its tables are directories, or objects of S3, its database is
a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.clients.drivers import iceberg_rest
from tests.support.foreign_server import ForeignServer
from tests.support.s3 import BUCKET, IDENTITY, S3Server


class IcebergRest(ForeignServer):
    """One server."""

    def __init__(self, directory: Path, s3: S3Server | None = None) -> None:
        super().__init__(directory)
        self._s3 = s3

    def _command(self) -> list[str]:
        return iceberg_rest()

    def _environment(self) -> Mapping[str, str]:
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
        return settings

    def _is_ready(self) -> bool:
        return self._answers("/v1/config")
