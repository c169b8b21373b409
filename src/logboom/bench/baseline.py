"""What the machine can do without any broker: the figures beside which the others stand."""

import os
import socket
import tempfile
import threading
import time
from pathlib import Path


def write_and_sync(directory: Path, seconds: float, block_bytes: int = 1024 * 1024) -> dict[str, object]:
    """A plain loop of write + fdatasync of 1 MiB blocks into a new file of `directory`; MB/s of 10^6 bytes."""
    block = os.urandom(block_bytes)
    blocks = 0
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        began = time.perf_counter()
        while (took_s := time.perf_counter() - began) < seconds:
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            blocks += 1
    return {"mb_per_s": round(blocks * block_bytes / took_s / 1e6, 2), "block_bytes": block_bytes, "blocks": blocks}


def loopback_copy(total_bytes: int, block_bytes: int = 1024 * 1024) -> dict[str, object]:
    """Send `total_bytes` over a loopback connection in plain blocks and read them into one buffer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            block = os.urandom(block_bytes)
            peer, _ = server.accept()
            with peer:
                for _ in range(total_bytes // block_bytes):
                    peer.sendall(block)

        sender = threading.Thread(target=send)
        sender.start()
        buffer, received = bytearray(block_bytes), 0
        with socket.create_connection(server.getsockname()) as reader:
            began = time.perf_counter()
            while got := reader.recv_into(buffer):
                received += got
            took_s = time.perf_counter() - began
        sender.join()
    return {"mb_per_s": round(received / took_s / 1e6, 2), "bytes": received, "block_bytes": block_bytes}


def small_syncs_us(directory: Path, seconds: float, block_bytes: int = 1024) -> list[int]:
    """Microseconds of each write + fdatasync of small blocks, one behind the other in a new file of `directory`."""
    block, taken = os.urandom(block_bytes), list[int]()
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            taken.append(int((time.perf_counter() - began) * 1e6))
    return taken
