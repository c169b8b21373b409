"""Reports the state of the process to systemd, where NOTIFY_SOCKET is set (sd_notify(3))."""

import contextlib
import os
import socket


def notify_systemd(state: str) -> None:
    """Send e.g. `READY=1` to the socket in NOTIFY_SOCKET; nothing happens where there is none or nothing listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
