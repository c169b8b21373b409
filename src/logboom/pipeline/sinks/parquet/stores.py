"""Object stores for archives: `s3://BUCKET/PREFIX`, `gs://...`, `abfss://CONTAINER@ACCOUNT.../PREFIX`; and HDFS.

Knows Arrow's file systems, whose clients find credentials as each cloud's own clients do: in the environment, in
default files, from the machine. Must not know archives.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from logboom.pipeline.plan.stores import StoreRef, is_in_hdfs

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_CONNECT_S: Final = 10
_TRIES: Final = 5


def omit_checksum_trailers() -> None:
    """Settings for S3 servers other than Amazon's: its client adds checksums as trailers, which most others do not
    support.

    Must be called before the first S3 file system is opened in a process.
    """
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")


@lru_cache(maxsize=16)
def open_store(store: StoreRef) -> tuple[FileSystem, str]:
    """The file system, and the path of the place in it; OSError if it cannot be opened. Cached in each process."""
    from pyarrow import fs

    parts = urlsplit(store.url)
    if is_in_hdfs(store.url):
        from logboom.pipeline.hdfs.client import WebHdfs
        from logboom.pipeline.hdfs.files import HdfsHandler

        return fs.PyFileSystem(HdfsHandler(WebHdfs(store.url))), parts.path.rstrip("/")
    root = f"{parts.netloc}{parts.path.rstrip('/')}"
    if parts.scheme == "s3":
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES)
        options = {"connect_timeout": _CONNECT_S, "retry_strategy": retries, "allow_delayed_open": True}
        if store.endpoint is not None:
            omit_checksum_trailers()
            scheme, _, place = store.endpoint.partition("://")
            options |= {"scheme": scheme, "endpoint_override": place.rstrip("/")}
        if store.region is not None:
            options["region"] = store.region
        return fs.S3FileSystem(**options), root
    system, path = fs.FileSystem.from_uri(store.url.rstrip("/"))
    return system, path
