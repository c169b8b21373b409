"""Which build of Logboom runs: plain Python, or one that has some of its modules compiled (decision 20).

Python prefers a compiled module to the source that lies beside it. So a compiled build carries the digests of the
sources that it was made of, and does not start where one has changed since, or where a compiled module is missing.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any, Final

MANIFEST: Final = "compiled.json"
"""Beside the modules of a compiled build; written by setup.py, with the compiler and each module's digest."""

PLAIN: Final = "plain Python"
PACKAGE: Final = __file__.rpartition("/base/")[0]
"""The directory of the package that this module is of."""


class StaleBuildError(ImportError):
    """What was compiled is not what the sources say."""


def describe(package: str = PACKAGE) -> str:
    """The build of the package in this directory, in some words: plain Python, or its compiler."""
    manifest = _manifest(package)
    return PLAIN if manifest is None else f"compiled by {manifest['compiler']}"


def check(package: str = PACKAGE) -> None:
    """StaleBuildError where the package in this directory is a compiled build whose sources and modules differ."""
    manifest = _manifest(package)
    if manifest is None:
        return
    from hashlib import sha256  # here, because a plain build starts without it

    for module, digest in manifest["sources"].items():
        path = f"{package}/{module}"
        with open(path, "rb") as source:
            if sha256(source.read()).hexdigest() != digest:
                raise StaleBuildError(f"{path} was changed after it was compiled, and {_AGAIN}")
        if not any(_is_there(path.removesuffix(".py") + suffix) for suffix in EXTENSION_SUFFIXES):
            raise StaleBuildError(f"{path} was compiled for another Python than this one: {_AGAIN}")


_AGAIN: Final = "what was compiled does not run in its place: install Logboom again, with LOGBOOM_COMPILE=1 or without."


def _manifest(package: str) -> dict[str, Any] | None:
    try:
        with open(f"{package}/{MANIFEST}", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    from json import loads

    found: dict[str, Any] = loads(data)
    return found


def _is_there(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except FileNotFoundError:
        return False
