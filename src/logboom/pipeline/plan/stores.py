"""Places in object stores, as a pipeline's file names them: `s3://BUCKET/PREFIX`, `gs://...`,
`abfss://CONTAINER@ACCOUNT.../PREFIX`, and in HDFS, `webhdfs://NAMENODE:9870/PREFIX`.

Knows only the text. `sinks.parquet.stores` opens those of archives, and `checkpoint.keeping` those of checkpoints.
"""

import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from logboom.pipeline.plan.locations import is_host, url_fault

BUCKET_SCHEMES: Final = ("s3", "gs", "abfs", "abfss")
HDFS_SCHEMES: Final = ("webhdfs", "swebhdfs")
"""HDFS through the HTTP interface of its name nodes, with the schemes of Hadoop's own file systems."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]+")
_ENDPOINT: Final = re.compile(r"https?://[^/@?#\s]+/?")


class StoreRef(msgspec.Struct, frozen=True, kw_only=True):
    """A place in an object store, without credentials."""

    url: str
    endpoint: str | None = None
    """Address of an S3 server other than the cloud's, `http://HOST:PORT`."""
    region: str | None = None


def is_url_of_store(path: str) -> bool:
    """Whether a path is in an object store, or in HDFS.

    >>> is_url_of_store("s3://logs/app"), is_url_of_store("./archive")
    (True, False)
    """
    return is_url_of_bucket(path) or is_in_hdfs(path)


def is_url_of_bucket(path: str) -> bool:
    """Whether it is in a cloud's store, or in an S3 server."""
    return path.partition("://")[0] in BUCKET_SCHEMES and "://" in path


def is_in_hdfs(path: str) -> bool:
    """Whether it is in HDFS.

    >>> is_in_hdfs("webhdfs://namenode:9870/logs"), is_in_hdfs("s3://logs/app")
    (True, False)
    """
    return path.partition("://")[0] in HDFS_SCHEMES and "://" in path


def store_fault(store: StoreRef, owner: str = "archive") -> str | None:
    """What is wrong with a place, as the end of a sentence; None if it is valid. `owner`: what is stored there."""
    try:
        parts = urlsplit(store.url)
        secret = parts.password is not None
    except ValueError as error:
        return f"cannot be read: {error}"
    if parts.scheme in HDFS_SCHEMES:
        return _hdfs_fault(store.url, parts.netloc, parts.path, owner)
    if not parts.netloc or not parts.path.strip("/"):
        return f"should be a bucket and a prefix, such as s3://BUCKET/PREFIX: only the {owner} may use the prefix"
    if not secret and parts.scheme in ("s3", "gs") and (not _BUCKET.fullmatch(parts.netloc) or ".." in parts.netloc):
        return (
            f"has a bucket {parts.netloc!r}, which is not a valid name of one: letters, digits, '-', '_' and '.', "
            "from 3 on"
        )
    if secret or parts.query or parts.fragment:
        return "has more than a bucket and a prefix; credentials come from the environment or the cloud's own files"
    return _prefix_fault(store.url, parts.path)


def _prefix_fault(url: str, path: str) -> str | None:
    if not url.isprintable():
        return "has characters that no prefix should have"
    if any(part in ("", ".", "..") for part in path.strip("/").split("/")):
        return "has an empty name, '.' or '..' in its prefix"
    return None


def _hdfs_fault(url: str, nodes: str, path: str, owner: str) -> str | None:
    if not nodes or not path.strip("/"):
        return (
            f"should be webhdfs://NAMENODE:9870/PATH: a name node's HTTP, and a directory that is the {owner}'s alone"
        )
    if "@" in nodes or "?" in url or "#" in url:
        return "has more than name nodes and a directory; the user is that of HADOOP_USER_NAME"
    for node in nodes.split(","):
        host, _, port = node.partition(":")
        if not is_host(host) or (port and not (port.isdecimal() and 0 < int(port) < 65_536)):
            return f"has {node!r}, which is not HOST:PORT of a name node's HTTP interface"
    return _prefix_fault(url, path)


def option_faults(path: str, endpoint: str | None, region: str | None) -> dict[str, str]:
    """What is wrong with the options for a path, by key."""
    found = {}
    if not path.startswith("s3://"):
        given = {"endpoint": endpoint, "region": region}
        return {key: "goes with a path that begins with s3://" for key, value in given.items() if value is not None}
    if region is not None and not _REGION.fullmatch(region):
        found["region"] = f"{region!r} is not a valid name of a region such as eu-west-1"
    if endpoint is not None and (not _ENDPOINT.fullmatch(endpoint) or url_fault(endpoint) is not None):
        found["endpoint"] = f"{endpoint!r} is not http://HOST:PORT or https://HOST:PORT"
    return found
