"""Linux system calls that neither libc nor Python has a function for, by their numbers."""

import ctypes
import os
from typing import Final

_SYSCALL: Final = ctypes.PyDLL(None, use_errno=True).syscall
"""`PyDLL` keeps the interpreter lock: right for calls of a microsecond, since giving it up could cost a millisecond
until a busy reader's thread returns it."""
_SYSCALL.restype = ctypes.c_long


def system_call(number: int, *arguments: object) -> int:
    """What the call returns. Each argument is a value of ctypes, or None for a null pointer. Raises OSError."""
    result: int = _SYSCALL(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
