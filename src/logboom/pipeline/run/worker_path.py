"""The module path of Spark's Python workers, without the zip files that Spark puts in front of it.

Spark makes its workers load pyspark and py4j from zip files, and adds the jar of its core, which contains no Python.
Python does not cache compiled modules of a zip file: each worker parent compiled pyspark again, 0.5 s of CPU time. And
in its first task each worker calls `importlib.invalidate_caches`, after which Python reads the zip directory again,
once for each package that was loaded from it: 0.1 s of CPU time.

Knows the import system and how Spark arranges its files. Must not import pyspark: where it is loaded from is not
decided yet.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zipimport import zipimporter

_JAR: Final = ".jar"
_PYSPARK: Final = "pyspark.zip"
_PY4J: Final = ("py4j-", "-src.zip")


def leave_out_archives() -> None:
    """Called before pyspark is imported: load it, and py4j, from where pip has installed the Spark whose zip files are
    on the path. Zip files of another Spark are kept, since its version may differ."""
    sys.path[:] = without_archives(sys.path)
    forget_packages_of_archives()


def without_archives(path: Sequence[str]) -> list[str]:
    """A module path without jars, and without the zip files of a Spark that is itself installed on the path."""
    installed = {os.path.realpath(entry) for entry in path}
    return [entry for entry in path if not entry.endswith(_JAR) and not _is_installed(Path(entry), installed)]


def _is_installed(entry: Path, installed: set[str]) -> bool:
    """Whether this is a zip file of SITE/pyspark/python/lib, where SITE is one of the directories."""
    name, package = entry.name, entry.parent.parent.parent
    if name != _PYSPARK and not (name.startswith(_PY4J[0]) and name.endswith(_PY4J[1])):
        return False
    own = (package, package.parent / "py4j")
    return os.path.realpath(package.parent) in installed and all((one / "__init__.py").is_file() for one in own)


def forget_packages_of_archives() -> None:
    """Called before workers are forked: reads the directory of zip files that stay on the path only once. Python finds
    their packages again when it searches there."""
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and place not in sys.path:
            del sys.path_importer_cache[place]
