"""Imports every module of Logboom, except those that need a package of pipelines that is not installed, and prints how
many there were.

`python -W error -m tests.support.every_module` fails where a module uses something that this Python deprecates.
"""

import importlib
import pkgutil
from collections import Counter

import logboom

WITHOUT = frozenset(("numpy", "pyarrow", "pyiceberg", "pyspark", "re2", "requests", "urllib3"))
"""Packages that only pipelines need."""


def main() -> None:
    """Import all; the first error ends it."""
    found: Counter[str] = Counter()
    for module in pkgutil.walk_packages(logboom.__path__, "logboom."):
        if module.name.endswith(".__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in WITHOUT:
                raise
            found["left out"] += 1
        else:
            found["imported"] += 1
    print(", ".join(f"{count} {what}" for what, count in found.items()))


if __name__ == "__main__":
    main()
