"""The module path of Spark's Python workers, without the archives that Spark puts in front of it.

Spark has its workers load pyspark and py4j from zip files, and adds the jar of its core, which holds no Python. Nothing
compiled is kept of a module in a zip file: each parent of workers compiled pyspark anew, 0.5 s of CPU time. And in its
first task each worker calls `importlib.invalidate_caches`, whereupon Python reads the whole directory of an archive
again, once for each package that was loaded from it: 0.1 s of CPU time.

Knows the import system and how Spark lays out its files. Must not import pyspark: its place is not decided yet.
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
    """Before pyspark is imported: takes it, and py4j, from where pip has put the Spark whose archives are on the path.
    Another Spark's may be of another version, and stay."""
    sys.path[:] = without_archives(sys.path)
    forget_packages_of_archives()


def without_archives(path: Sequence[str]) -> list[str]:
    """A module path without jars, and without the archives of a Spark that is installed on the path itself."""
    installed = {os.path.realpath(entry) for entry in path}
    return [entry for entry in path if not entry.endswith(_JAR) and not _is_installed(Path(entry), installed)]


def _is_installed(entry: Path, installed: set[str]) -> bool:
    """Whether this is an archive of SITE/pyspark/python/lib, and SITE is one of the directories."""
    name, package = entry.name, entry.parent.parent.parent
    if name != _PYSPARK and not (name.startswith(_PY4J[0]) and name.endswith(_PY4J[1])):
        return False
    own = (package, package.parent / "py4j")
    return os.path.realpath(package.parent) in installed and all((one / "__init__.py").is_file() for one in own)


def forget_packages_of_archives() -> None:
    """Before workers are forked: of an archive that stays on the path they then read the directory once. Python finds
    a package of it anew where it looks into that later."""
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and place not in sys.path:
            del sys.path_importer_cache[place]
