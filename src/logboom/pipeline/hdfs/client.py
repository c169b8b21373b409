"""Requests of WebHDFS: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html

A name node answers for names, and says which data node takes or gives the bytes. Of several name nodes one is active;
the others answer with a StandbyException. Requests that fail for a while (a name node that restarts, its safe mode, a
data node that is gone) are sent again, for as long as `_RETRY_S`. A rename or removal whose answer was lost finds then
that there is nothing left to do, which is the same to who asked.

A data node syncs what it gets before it answers, whatever its own settings say: a bundle or a manifest that was sent is
there after a power failure too.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import random
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from logboom.pipeline.hdfs.tokens import FILE_VARIABLE, TokenFileError, token

Answer = TypeVar("Answer")

PORT, TLS_PORT = 9_870, 9_871
"""Hadoop's own ports for a name node's HTTP."""
_RETRY_S: Final = 30.0
_PAUSE_S, _PAUSE_MAX_S = 0.2, 4.0
_CONNECT_S, _ANSWER_S = 5.0, 60.0
_SAID_MAX: Final = 300
_ANSWER_MAX_BYTES: Final = 1 << 28
_FOR_GOOD: Final = frozenset(
    (
        *("AccessControlException", "AuthorizationException", "SecurityException", "InvalidToken"),
        *("IllegalArgumentException", "UnsupportedOperationException", "InvalidPathException"),
        *("FileAlreadyExistsException", "ParentNotDirectoryException", "PathIsNotDirectoryException"),
        *("NSQuotaExceededException", "DSQuotaExceededException", "QuotaExceededException"),
    )
)
"""Java's exceptions that another attempt would get too. All others pass: standby, safe mode, a lost connection between
the nodes, of which each has an exception of its own."""
_NOT_ACTIVE: Final = ("StandbyException", "ObserverRetryOnActiveException")
_UNAUTHORIZED, _NOT_FOUND = 401, 404


class HdfsError(OSError):
    """HDFS did not do what it was asked, in the time of all attempts."""


class _AgainError(Exception):
    """Another attempt may do."""

    def __init__(self, message: str, *, of_name_node: bool = False) -> None:
        """`of_name_node`: it is the name node's fault, so the next one should be asked."""
        super().__init__(message)
        self.of_name_node = of_name_node


class Status(NamedTuple):
    """A file or directory."""

    path: str
    is_directory: bool
    size: int
    modified_ms: int
    """Since 1970, by the clock of the name node."""


class WebHdfs:
    """The name nodes of one HDFS. Paths are absolute. Thread-safe: each request has a connection of its own."""

    def __init__(self, url: str) -> None:
        """`url`: `webhdfs://HOST:PORT,HOST:PORT/...`, or `swebhdfs:` for TLS; its path means nothing here."""
        parts = urlsplit(url)
        self._is_tls = parts.scheme == "swebhdfs"
        self._nodes = parts.netloc.split(",")
        self._active = 0
        self._user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def status(self, path: str) -> Status | None:
        """None if there is nothing."""
        try:
            return _status(path, self._named("GET", path, "GETFILESTATUS")["FileStatus"])
        except FileNotFoundError:
            return None

    def list(self, directory: str, *, recursive: bool) -> Iterator[Status]:
        """:raises FileNotFoundError:"""
        found = self._named("GET", directory, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        for one in found:
            status = _status(f"{directory}/{one['pathSuffix']}" if one["pathSuffix"] else directory, one)
            yield status
            if recursive and status.is_directory:
                try:
                    yield from self.list(status.path, recursive=True)
                except FileNotFoundError:  # removed meanwhile
                    continue

    def make_directory(self, path: str) -> None:
        """With those around it; one that is there is no fault."""
        self._named("PUT", path, "MKDIRS")

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """What is not there is no fault."""
        self._named("DELETE", path, "DELETE", recursive=str(recursive).lower())

    def rename(self, source: str, target: str) -> bool:
        """To a name that nothing has, in a directory that is there. False: the source is missing and the target is
        there, so an attempt whose answer was lost has done it, or somebody else has been here.

        :raises FileExistsError: something has that name.
        """
        if self._named("PUT", source, "RENAME", destination=target)["boolean"]:
            return True
        if self.status(source) is not None:
            raise FileExistsError(target)
        if self.status(target) is None:
            raise FileNotFoundError(source)
        return False

    def replace(self, source: str, target: str) -> bool:
        """The same to a name that another file may have, which is missing then."""
        try:
            self._named("PUT", source, "RENAME", destination=target, renameoptions="OVERWRITE")
        except FileNotFoundError:
            if self.status(target) is None:
                raise
            return False
        return True

    def create(self, path: str, content: bytes | BinaryIO) -> None:
        """A file of this content, in place of one that is there. A broken attempt may leave a part of it."""

        options = {"overwrite": "true", "createflag": "CREATE,SYNC_BLOCK", "noredirect": "true"}

        def attempt() -> None:
            location = self._asked("PUT", path, "CREATE", **options)["Location"]
            if not isinstance(content, bytes):
                content.seek(0)
            self._sent("PUT", location, content)

        self._until_done(attempt)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """:raises FileNotFoundError:"""
        part = {"offset": str(offset)} | ({} if length is None else {"length": str(length)})

        def attempt() -> bytes:
            location = self._asked("GET", path, "OPEN", noredirect="true", **part)["Location"]
            return self._sent("GET", location, None)

        return self._until_done(attempt)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _named(self, method: str, path: str, operation: str, **options: str) -> Any:
        return self._until_done(lambda: self._asked(method, path, operation, **options))

    def _asked(self, method: str, path: str, operation: str, **options: str) -> Any:
        """The answer of the active name node."""
        query = urlencode({"op": operation, **self._who(), **options})
        node = self._nodes[self._active % len(self._nodes)]
        scheme = "https" if self._is_tls else "http"
        port = "" if ":" in node else f":{TLS_PORT if self._is_tls else PORT}"
        try:
            answer = self._sent(method, f"{scheme}://{node}{port}/webhdfs/v1{quote(path)}?{query}", None)
            return json.loads(answer) if answer else {}
        except ValueError as error:
            raise HdfsError(f"{node} does not answer as WebHDFS does") from error
        except _AgainError as error:
            raise _AgainError(str(error), of_name_node=True) from error

    def _who(self) -> dict[str, str]:
        """What a request says of who asks."""
        try:
            given = token()
        except TokenFileError as error:
            raise HdfsError(str(error)) from error
        return {"user.name": self._user} if given is None else {"delegation": given}

    def _until_done(self, attempt: Callable[[], Answer]) -> Answer:
        deadline, pause_s = time.monotonic() + _RETRY_S, _PAUSE_S
        while True:
            asked = self._active
            try:
                return attempt()
            except _AgainError as error:
                if error.of_name_node and self._active == asked:  # else another thread has gone on to the next one
                    self._active = asked + 1
                if time.monotonic() + pause_s > deadline:
                    raise HdfsError(str(error)) from error
            time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _sent(self, method: str, url: str, content: bytes | BinaryIO | None) -> bytes:
        parts = urlsplit(url)
        place = parts.netloc
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(place, timeout=_CONNECT_S, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(place, timeout=_CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(_ANSWER_S)
            headers = {} if content is None else {"Content-Type": "application/octet-stream"}
            headers |= {} if content is None else {"Content-Length": str(_size(content))}
            # A name node sends the place at a data node as it has it, characters beyond ASCII included.
            path = quote(f"{parts.path}?{parts.query}", safe="/%?&=+:;,@!$'()*~")
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            said = answer.read(_ANSWER_MAX_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise HdfsError(f"{place}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _AgainError(f"{place}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise _refusal(place, answer.status, said)
        return said


def _size(content: bytes | BinaryIO) -> int:
    if isinstance(content, bytes):
        return len(content)
    here = content.tell()
    size = content.seek(0, os.SEEK_END) - here
    content.seek(here)
    return size


def _refusal(place: str, status: int, said: bytes) -> Exception:
    """What an answer of WebHDFS that is a refusal means."""
    try:
        given = json.loads(said)["RemoteException"]
        kind, message = str(given["exception"]), str(given["message"]).split("\n")[0][:_SAID_MAX]
    except (ValueError, KeyError, TypeError):
        kind, message = "", f"HTTP status {status}"
    if status == _UNAUTHORIZED:
        return HdfsError(f"{place} refuses the user ({message}): {FILE_VARIABLE} names a file with a valid token")
    if kind == "FileNotFoundException" or (not kind and status == _NOT_FOUND):
        return FileNotFoundError(message)
    error = f"{place}: {message}"
    # A name node on standby sends to data nodes as the active one does, and they are refused by it.
    return HdfsError(error) if kind in _FOR_GOOD else _AgainError(error, of_name_node=kind in _NOT_ACTIVE)


def _status(path: str, given: Any) -> Status:
    return Status(path, given["type"] == "DIRECTORY", int(given["length"]), int(given["modificationTime"]))
