"""The allocator's settings are taken where glibc is the C library."""

import ctypes
import subprocess
import sys

import pytest
from tests.support.waiting import WAIT_S


def test_glibc_takes_the_settings() -> None:
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("this C library is not glibc")
    # In a process of its own: the settings stay for the life of a process.
    code = "from logboom.host.allocator import keep_buffers; raise SystemExit(0 if keep_buffers() else 1)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=WAIT_S).returncode == 0
