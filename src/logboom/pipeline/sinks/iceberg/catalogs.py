"""Opens the catalog of a sink, and configures access to its files.

Knows pyiceberg and credentials; must not know events, batches or Spark.

Credentials for files in an object store come with the table if the catalog provides them. Otherwise they are found as
the cloud's own clients do, as for archives (`parquet.stores`): environment, default files, machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.stores import is_url_of_bucket
from logboom.pipeline.sinks.iceberg.bounded_requests import bound
from logboom.pipeline.sinks.parquet.stores import omit_checksum_trailers

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from requests import Session

    from logboom.pipeline.sinks.iceberg import IcebergSink

_ENDPOINT: Final = "s3.endpoint"
_REGION: Final = "s3.region"
_FILES: Final = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
"""Timeouts in seconds. Settings of the catalog and of the sink have priority."""


def needs_pyiceberg() -> None:
    """Raise PipelineError if pyiceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise PipelineError(f"the sink iceberg needs pyiceberg ({error}): pip install 'logboom[iceberg]'") from error


def open_catalog(sink: IcebergSink, resolve: Callable[[str], Path], secrets: Mapping[str, str]) -> Catalog:
    """Open the sink's catalog. `secrets`: the texts of its credentials by `KeyRef.id`.

    A REST catalog is asked for its settings at once; pyiceberg's errors are passed on.
    """
    if sink.path is not None:
        from logboom.pipeline.sinks.iceberg.hadoop_catalog import HadoopCatalog

        return HadoopCatalog(resolve(sink.path))
    assert sink.catalog is not None
    properties = {**_FILES, **_region(dict(sink.properties)), **dict(sink.properties), "uri": sink.catalog}
    if sink.warehouse is not None:
        properties["warehouse"] = sink.warehouse
    for name, ref in (("token", sink.token), ("credential", sink.credential)):
        if ref is not None:
            properties[name] = secrets[ref.id]
    return _rest_catalog(properties)


def _region(properties: Mapping[str, str]) -> dict[str, str]:
    """Settings for an S3 server that is not Amazon's: otherwise pyiceberg would ask Amazon for the bucket's region."""
    if _ENDPOINT not in properties or _REGION in properties or "client.region" in properties:
        return {}
    found = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {_REGION: found or "us-east-1"}


def prepare_files(io: FileIO) -> None:
    """Must be called before the first file access in each process that reads or writes files of a table."""
    if _ENDPOINT in io.properties:
        omit_checksum_trailers()


def try_files(table: Table) -> None:
    """Write and remove a small object in the table's location in an object store; errors are passed on."""
    prepare_files(table.io)
    if not is_url_of_bucket(table.location()):
        return
    path = f"{table.location().rstrip('/')}/metadata/logboom-connect"
    with table.io.new_output(path).create(overwrite=True) as file:
        file.write(b"logboom pipeline check --connect\n")
    table.io.delete(path)


def _rest_catalog(properties: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog.rest import RestCatalog

    class BoundedRestCatalog(RestCatalog):
        """A REST catalog whose requests have a time limit. pyiceberg would wait forever for a server that does not
        answer."""

        def _config_headers(self, session: Session) -> None:
            super()._config_headers(session)
            bound(session)  # the next call may request a token

        def _create_session(self) -> Session:
            session = super()._create_session()
            bound(session)  # also signs requests, with an adapter of its own
            return session

    return BoundedRestCatalog("rest", **properties)
