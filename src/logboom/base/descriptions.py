"""What stands under the fields of settings, as their description. Knows Python's syntax trees and nothing of values.

pydantic can read it when a class is made (`use_attribute_docstrings`). Every process would do so, for a fifth of what a
command of a pipeline takes to compile its file, and few want to know.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise

from pydantic import BaseModel


def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Of the fields of a model that have one, by name: what the field itself says, or what stands under it in the class
    that is last to have it."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _of_module(owner.__module__).get(owner.__qualname__, {})
    return found | {name: info.description for name, info in model.model_fields.items() if info.description}


@functools.cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Of the classes that stand in a module, by their names; none where its source is not to be had."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):
        return {}
    return {node.name: dict(_below_fields(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(node.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
