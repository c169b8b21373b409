"""Asking a running supervisor from another process: one line of JSON there, one back, over a socket in its folder.

    {"do": "kill", "node": 2}    ->    {"node": {"id": 2, "state": "down", "pid": null}}  or  {"error": "..."}

The socket is its owner's alone. The supervisor signals its own children, so that no signal ever reaches a process that
has got the id of one that is gone.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from logboom.app.supervisor.folder import FolderError
from logboom.base.errors import LogboomError
from logboom.base.units import KIB

SOCKET_NAME: Final = "control.sock"
_REQUEST_MAX_BYTES: Final = 4 * KIB
_REQUEST_MAX_S: Final = 5.0
_LAST_ANSWERS_MAX_S: Final = 1.0
_ANSWER_MAX_BYTES: Final = 64 * KIB

Ask: TypeAlias = Callable[[str, int | None], Awaitable[dict[str, Any]]]
"""What is to be done, and with which node; the answer. Raises LogboomError."""


@contextlib.asynccontextmanager
async def answering(folder: Path, ask: Ask) -> AsyncIterator[None]:
    """Answer requests to the folder's supervisor, which holds the folder's lock. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        (folder / SOCKET_NAME).unlink()  # of a supervisor that was killed
    listener = socket.socket(socket.AF_UNIX)
    with _short_path(folder) as path:
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
    tasks: set[asyncio.Task[Any]] = set()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer(reader, writer, ask))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(take, sock=listener, limit=_REQUEST_MAX_BYTES)
    try:
        yield
    finally:
        server.close()
        if tasks:  # who asked for the stop is to hear of its end
            await asyncio.wait(tasks, timeout=_LAST_ANSWERS_MAX_S)
        with contextlib.suppress(FileNotFoundError):
            (folder / SOCKET_NAME).unlink()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ask: Ask) -> None:
    try:
        line = await asyncio.wait_for(reader.readline(), _REQUEST_MAX_S)
        try:
            request = json.loads(line)
            answer = await ask(str(request["do"]), request.get("node"))
        except LogboomError as error:
            answer = {"error": str(error)}
        except (ValueError, KeyError, TypeError, AttributeError):
            answer = {"error": "the supervisor does not know this request"}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
    except (OSError, ValueError, TimeoutError):
        pass  # who asked has gone, or never said what
    finally:
        writer.close()


def ask_supervisor(folder: Path, what: str, node: int | None, timeout_s: float | None) -> dict[str, Any]:
    """The answer of a folder's supervisor. Raises LogboomError with its words where it refused, FolderError where none
    runs there or none answers."""
    request = json.dumps({"do": what, "node": node}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            with _short_path(folder) as path:
                connection.connect(path)
            connection.sendall(request)
            answer = json.loads(_line(connection))
    except TimeoutError:
        raise FolderError(f"the supervisor of {folder} did not answer in {timeout_s:g} s") from None
    except (OSError, ValueError):
        raise FolderError(f"no cluster runs in {folder}: `logboom cluster up` starts it") from None
    if "error" in answer:
        raise LogboomError(answer["error"])
    assert isinstance(answer, dict)
    return answer


def _line(connection: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = connection.recv(_ANSWER_MAX_BYTES)
        if not part or len(line) > _ANSWER_MAX_BYTES:
            raise ConnectionError("the supervisor ended")
        line += part
    return bytes(line)


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """A path to the socket that fits its address, which has room for 107 bytes (unix(7))."""
    path = str(folder / SOCKET_NAME)
    if len(os.fsencode(path)) < 100:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
