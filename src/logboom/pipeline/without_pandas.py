"""Prevents pyarrow from importing pandas in processes of our own. Knows only the import system and pyarrow.

pyarrow imports pandas at the first conversion of a Python object, a NumPy array among them, to see whether the object
is a Series. Nothing here ever is, and the import takes 0.3 s of CPU and 30 MB in each process: a third of the commands
that compile a pipeline, and again in every Python worker of Spark, since the workers are forked before their first
conversion.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed here", name=fullname)
        return None


def decide_without_pandas() -> None:
    """Make pyarrow look for pandas now and not find it; pyarrow remembers that for the life of the process.

    Others may import pandas afterwards, but pyarrow will convert neither from nor to it: call this only where no code
    of a user runs.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
