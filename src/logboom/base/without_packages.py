"""Packages that a process does without, although they are installed."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

UNUSED_ANYWHERE: Final = ("hypothesis",)
"""kio offers its types to hypothesis wherever that is installed; loading it costs a process 0.2 s of CPU and 8 MB."""


@contextlib.contextmanager
def without_packages(*names: str) -> Iterator[None]:
    """Make imports of some packages fail as if they were not installed, except those that are loaded already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # this is how Python marks what cannot be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
