"""Objects of a store: created once, written, read, listed, deleted. Knows obstore, which is Apache's object_store for
Python.

Its clients find credentials in the environment, in a cloud's usual files and from the machine's metadata service. They
retry by themselves, with growing random pauses, for up to `_RETRY_S`.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.stores import StoreRef

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_RETRY_S: Final = 30.0
_TRIES: Final = 8
_REQUEST_TIMEOUT: Final = "60s"
_CONNECT_TIMEOUT: Final = "5s"
_SAID_MAX: Final = 300
_QUERY: Final = re.compile(r"\?[^\s)]+")
"""The query of a URL: it may hold a signature."""


class StoreError(PipelineError):
    """A request to the store failed, after all retries."""


class TakenError(Exception):
    """An object with that name exists already."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing."""

    path: str
    modified: datetime
    """By the clock of the store."""


class Objects(Protocol):
    """Objects below the prefix of one checkpoint; StoreError if the store fails."""

    url: str

    def put_new(self, path: str, data: bytes) -> None:
        """Creates an object, completely or not at all; TakenError if one with this name exists."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Creates or replaces an object."""
        ...

    def put_file(self, path: str, file: Path) -> None:
        """Creates or replaces an object with the content of a file, which may be large."""
        ...

    def get(self, path: str) -> bytes:
        """:raises FileNotFoundError:"""
        ...

    def list(self, directory: str) -> Sequence[Listed]:
        """All objects below a directory."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes objects; a missing object is not an error."""
        ...


class ObstoreObjects:
    """`Objects` in a real store."""

    def __init__(self, store: StoreRef) -> None:
        """Sends no request yet. :raises PipelineError: obstore is not installed, or does not support such a URL."""
        self.url = store.url
        self._store = _opened(store)

    def put_new(self, path: str, data: bytes) -> None:
        import obstore

        with self._requests("put", path):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except obstore.exceptions.AlreadyExistsError as error:
                raise TakenError(path) from error

    def put(self, path: str, data: bytes) -> None:
        import obstore

        with self._requests("put", path):
            obstore.put(self._store, path, data)

    def put_file(self, path: str, file: Path) -> None:
        import obstore

        with self._requests("put", path):
            obstore.put(self._store, path, file)

    def get(self, path: str) -> bytes:
        import obstore

        with self._requests("get", path):
            return bytes(obstore.get(self._store, path).bytes())

    def list(self, directory: str) -> Sequence[Listed]:
        import obstore

        with self._requests("list", directory):
            pages = obstore.list(self._store, f"{directory}/")
            return [Listed(str(one["path"]), one["last_modified"]) for page in pages for one in page]

    def delete(self, paths: Iterable[str]) -> None:
        import obstore

        wanted = list(paths)
        if not wanted:
            return
        with self._requests("delete", wanted[0]):
            try:
                obstore.delete(self._store, wanted)
            except FileNotFoundError:  # some stores report a missing object and then do not delete the others
                for path in wanted:
                    _delete_one(self._store, path)

    @contextmanager
    def _requests(self, what: str, path: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if what in ("get", "delete"):
                raise
            raise StoreError(f"{self.url}: {what} {path}: there is no such bucket") from error
        except (BaseError, ValueError, PermissionError) as error:
            said = _QUERY.sub("?...", " ".join(str(error).partition("Debug source")[0].split()))[:_SAID_MAX]
            raise StoreError(f"{self.url}: {what} {path}: {said}") from error


def _delete_one(store: ObjectStore, path: str) -> None:
    import obstore

    with suppress(FileNotFoundError):
        obstore.delete(store, path)


def _opened(store: StoreRef) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise PipelineError(
            f"a checkpoint in a bucket needs obstore ({error}): pip install 'logboom[bucket]'"
        ) from error
    config: dict[str, Any] = {}
    client: dict[str, Any] = {"timeout": _REQUEST_TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT}
    if store.url.startswith("s3://"):
        config = {**keys_of_profile(os.environ), "region": store.region or region_of(os.environ)}
        if store.endpoint is not None:
            config["endpoint"] = store.endpoint.rstrip("/")
            client["allow_http"] = store.endpoint.startswith("http://")
    retries = {"max_retries": _TRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    try:
        opened: ObjectStore = from_url(store.url, client_options=client, retry_config=retries, **config)  # type: ignore[call-overload, unused-ignore]  # the options of one cloud
    except (BaseError, ValueError) as error:
        raise PipelineError(f"{store.url} cannot be a checkpoint: {error}") from error
    return opened


def region_of(environ: Mapping[str, str]) -> str:
    """The object_store library reads the region neither from a profile nor from the bucket."""
    named = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return named or _of_profile(environ, "AWS_CONFIG_FILE", "config", "profile ").get("region", "us-east-1")


def keys_of_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """The keys of a profile in Amazon's usual file, if the environment has none: object_store does not read that
    file."""
    if any(environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")):
        return {}
    found = _of_profile(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials", "")
    names = {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    }
    return {option: found[key] for option, key in names.items() if key in found}


def _of_profile(environ: Mapping[str, str], variable: str, name: str, prefix: str) -> Mapping[str, str]:
    path = Path(environ.get(variable) or Path("~/.aws").expanduser() / name)
    profile = environ.get("AWS_PROFILE", "default")
    reader = configparser.ConfigParser(interpolation=None)
    try:
        reader.read(path)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    for section in (f"{prefix}{profile}", profile):
        if reader.has_section(section):
            return dict(reader[section])
    return {}
