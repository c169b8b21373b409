"""Python sources of this repository as syntax trees, for tests of the layout and of what documents name."""

import ast
import gc
from functools import cache
from pathlib import Path


def tree_of(path: Path) -> ast.Module:
    """What a module parses to.

    No garbage is collected meanwhile. That makes it four times as fast, and before Python 3.11.8 it also guards against
    an error: the depth of the tree is counted in one place for all calls (github.com/python/cpython/issues/106905), and
    what is collected may parse too. An object that was not closed tells so with a traceback, for which 3.11 parses the
    failing line; the call outside then finds another depth than its own, "AST constructor recursion depth mismatch".
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        if was_enabled:
            gc.enable()


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of all functions and methods of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree_of(path)) if isinstance(node, kinds))
