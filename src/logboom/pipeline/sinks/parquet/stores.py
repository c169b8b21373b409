"""Object stores as places for an archive: `s3://BUCKET/PREFIX`, `gs://...`, `abfss://CONTAINER@ACCOUNT.../PREFIX`.

Knows the file systems of Arrow, whose clients find credentials as those of each cloud do: in the environment, in their
usual files, from the machine. Must not know archives.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEMES: Final = ("s3", "gs", "abfs", "abfss")
_CONNECT_S: Final = 10
_TRIES: Final = 5


class StoreRef(msgspec.Struct, frozen=True, kw_only=True):
    """A place in an object store; it has no credentials."""

    url: str
    endpoint: str | None = None
    """Of another server than the cloud's that speaks S3, `http://HOST:PORT`."""
    region: str | None = None


def is_url_of_store(path: str) -> bool:
    """Whether a path is in an object store.

    >>> is_url_of_store("s3://logs/app"), is_url_of_store("./archive")
    (True, False)
    """
    return path.partition("://")[0] in SCHEMES and "://" in path


def store_fault(store: StoreRef) -> str | None:
    """What is wrong with a place, as the end of a sentence; None where it can be one."""
    try:
        parts = urlsplit(store.url)
        secret = parts.password is not None
    except ValueError as error:
        return f"cannot be read: {error}"
    if not parts.netloc or not parts.path.strip("/"):
        return "should be a bucket and a prefix, such as s3://BUCKET/PREFIX: the prefix is the archive's alone"
    if secret or parts.query or parts.fragment:
        return "has more than a bucket and a prefix; credentials come from the environment or the cloud's own files"
    if any(part in ("", ".", "..") for part in parts.path.strip("/").split("/")):
        return "has an empty name, '.' or '..' in its prefix"
    return None


def omit_checksum_trailers() -> None:
    """For other servers than Amazon's: its client adds checksums as trailers, which most others do not know.

    To be called before the first file system of S3 is opened in a process.
    """
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")


@lru_cache(maxsize=16)
def open_store(store: StoreRef) -> tuple[FileSystem, str]:
    """The file system, and the path of the place in it; OSError where it cannot be had. Cached in each process."""
    from pyarrow import fs

    parts = urlsplit(store.url)
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
