"""The Helper port: a process of this program beside it, started by `subprocess`, joined by a pair of sockets.

Messages are bytes after their length. A file goes with a message as its descriptor (unix(7), SCM_RIGHTS), so that the
helper needs to open nothing itself. It must not know what is said.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from struct import Struct
from typing import Final

from logboom.base.ports import File, HelperSide
from logboom.host.allocator import keep_buffers
from logboom.host.disk import GivenFile
from logboom.host.time_slices import shorten_time_slices

_HEAD: Final = Struct(">I?")
"""Bytes of the message, and whether a file comes with it."""
_START: Final = f"import sys; from {__name__} import main; main(sys.argv[1], int(sys.argv[2]))"
_NICENESS: Final = 19
"""The least: a seventieth of the weight of a process that is not nice (sched(7)). It yields to the broker and to
clients on the same machine, but is never starved; SCHED_IDLE would leave it a three-hundredth. With 5, a consumer
beside a compaction lost a quarter of its rate on two cores. With 12, what woke up waited milliseconds for the end of
its slice (docs/performance-history.md)."""
_AUTOGROUP: Final = "/proc/self/autogroup"
"""Where Linux shares the cores among sessions first (sched(7), "The autogroup feature"), niceness counts within a
session alone: a helper in the broker's would have the broker's whole weight against clients while the broker waits. So
it has a session of its own, which is as nice as the helper."""
_STARVED_SHARE: Final = 0.1
_SERVED_SHARE: Final = 0.5
"""Of the time in which the helper could have worked, how much it did. Below the first its session becomes no nicer than
others, above the second nicer again, in steps."""
_TELLING_NS: Final = 50_000_000
"""Time in which it could have worked; less says nothing."""
_NICENESS_STEP: Final = 5
_LOOK_S: Final = 0.2
_SCHEDSTAT: Final = "/proc/self/schedstat"
"""Nanoseconds of the main thread on a core, and of its waiting for one (Documentation/scheduler/sched-stats.rst)."""
_SILENCE_MAX_S: Final = 120.0
"""How long the helper may say nothing. It tells what it did every few MiB: with a thousandth of a core that takes
seconds, and minutes only where it was stopped (SIGSTOP), or where the disk does not answer."""
_KILLED_FIRST: Final = "500"
"""Where memory runs out the kernel is to choose the helper, before the broker (proc_pid_oom_score_adj(5))."""


class HelperProcess:
    """See the port. Life: started when this is made, until `end` or until this process ends."""

    def __init__(self, work: str, *, silence_max_s: float = _SILENCE_MAX_S) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(silence_max_s)
        self._socket = ours
        command = [sys.executable, "-P", "-c", _START, work, str(theirs.fileno())]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
                )
        except OSError:
            ours.close()
            raise

    def send(self, message: bytes, file: File | None = None) -> None:
        _send(self._socket, message, None if file is None else file.descriptor())

    def receive(self) -> bytes:
        try:
            return _receive(self._socket)[0]
        except EOFError:
            raise ConnectionResetError("the helper process has ended") from None

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()
        self._socket.close()


def session_niceness(niceness: int, ran_ns: int, waited_ns: int) -> int:
    """How nice the helper's session is to be, which was so nice while it ran and waited for a core for this long.

    On cores that others want all the time the nicest session gets a thousandth of them, with the work it has to do
    growing meanwhile; one that is as nice as others gets a session's share.
    """
    could_work_ns = ran_ns + waited_ns
    if could_work_ns < _TELLING_NS:
        return niceness
    if ran_ns < _STARVED_SHARE * could_work_ns:
        return 0
    if ran_ns > _SERVED_SHARE * could_work_ns:
        return min(niceness + _NICENESS_STEP, _NICENESS)
    return niceness


class _SessionShare:
    """Keeps the helper's session so nice that it neither takes cores from others nor starves."""

    def __init__(self) -> None:
        self._niceness = _NICENESS
        self._ran_ns = self._waited_ns = 0
        """Of before the last look."""

    def keep(self) -> None:
        """Look now and then from now on, on a thread: whatever the helper does meanwhile, be it that it imports."""
        threading.Thread(target=self._look_for_ever, name="session share", daemon=True).start()

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            self._look()

    def _look(self) -> None:
        """Any process may make its session less nice, down to 0 (sched(7))."""
        try:
            with open(_SCHEDSTAT) as file:
                ran_ns, waited_ns = map(int, file.read().split()[:2])
            wanted = session_niceness(self._niceness, ran_ns - self._ran_ns, waited_ns - self._waited_ns)
            self._ran_ns, self._waited_ns = ran_ns, waited_ns
            if wanted != self._niceness:
                _write(_AUTOGROUP, str(wanted))
                self._niceness = wanted
        except (OSError, ValueError):
            return  # a kernel without one of them; or EAGAIN, and the next look tries again


class _Side:
    """The helper's end."""

    def __init__(self, link: socket.socket) -> None:
        self._socket = link

    def send(self, message: bytes) -> None:
        try:
            _send(self._socket, message, None)
        except OSError:
            raise EOFError from None

    def receive(self) -> tuple[bytes, File | None]:
        message, descriptor = _receive(self._socket)
        return message, None if descriptor is None else GivenFile(descriptor)


def _send(link: socket.socket, message: bytes, descriptor: int | None) -> None:
    head = _HEAD.pack(len(message), descriptor is not None)
    if descriptor is not None:
        # The descriptor comes with the first byte: the head goes alone, and is short enough never to be split.
        socket.send_fds(link, [head], [descriptor])
        link.sendall(message)
    else:
        link.sendall(head + message)


def _receive(link: socket.socket) -> tuple[bytes, int | None]:
    """EOFError where the other side has ended."""
    try:
        head, descriptors, _, _ = socket.recv_fds(link, _HEAD.size, 1)
        if len(head) < _HEAD.size:
            raise EOFError
        size, _ = _HEAD.unpack(head)
        message = bytearray()
        while len(message) < size:
            got = link.recv(size - len(message))
            if not got:
                raise EOFError
            message += got
    except ConnectionError:
        raise EOFError from None
    return bytes(message), descriptors[0] if descriptors else None


def _named(work: str) -> Callable[[HelperSide], None]:
    module, _, name = work.partition(":")
    found: Callable[[HelperSide], None] = getattr(import_module(module), name)
    return found


def _write(path: str, value: str) -> None:
    with open(path, "w") as file:
        file.write(value)


def main(work: str, descriptor: int) -> None:
    """Run the function `work` until it returns or the other process ends."""
    # Who ends the broker ends this too, by closing the socket; systemd signals both.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    os.nice(_NICENESS)
    shorten_time_slices(0)  # the broker's are short, and inherited: what works in the background has no hurry
    for path, value in ((_AUTOGROUP, str(_NICENESS)), ("/proc/self/oom_score_adj", _KILLED_FIRST)):
        with contextlib.suppress(OSError):
            _write(path, value)
    _SessionShare().keep()
    keep_buffers()
    link = socket.socket(fileno=descriptor)  # open until the end: it tells the other process of that
    with contextlib.suppress(EOFError):
        _named(work)(_Side(link))
