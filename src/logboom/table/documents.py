"""Values that are JSON documents, and merge patches of them (RFC 7386). Pure.

A merge reads a document and writes it back whole, so what it does not touch must come out as it went in. Numbers that a
double cannot hold exactly and objects with a name twice would not, and are refused.
"""

import json
from decimal import Decimal
from typing import Any, NoReturn

from logboom.table.errors import DocumentError


def parse(data: bytes, what: str) -> Any:
    """The JSON value in some bytes. DocumentError, which begins with `what`, where there is none."""
    try:
        return json.loads(
            data.decode(), parse_float=_exact, parse_constant=_no_constant, object_pairs_hook=_unique_names
        )
    except DocumentError as error:
        raise DocumentError(f"{what} {error}") from None
    except RecursionError:
        raise DocumentError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise DocumentError(f"{what} is not JSON: {error}") from None


def encode(document: Any) -> bytes:
    """A document as compact JSON in UTF-8. DocumentError where it has something that JSON does not know."""
    try:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except RecursionError:
        raise DocumentError("the document is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise DocumentError(f"the document cannot be written as JSON: {error}") from None


def merge_patch(target: Any, patch: Any) -> Any:
    """The document after a patch (RFC 7386, section 2): objects are merged, null removes a name, all else replaces.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": None}, "e": [4]})
    {'a': 1, 'b': {'d': 3}, 'e': [4]}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _exact(text: str) -> float:
    value = float(text)
    if abs(value) == float("inf") or Decimal(repr(value)) != Decimal(text):
        raise DocumentError(
            f"has the number {text}, which a double cannot hold: a merge would change it; put the document whole"
        )
    return value


def _no_constant(text: str) -> NoReturn:
    raise DocumentError(f"has {text}, which is not JSON")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise DocumentError("has an object with a name twice: a merge would drop one; put the document whole")
    return members
