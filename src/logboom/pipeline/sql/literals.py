"""Determines the value of a literal from the SQL that Spark writes for it.

This needs one call of the JVM, instead of separate ones for the value, its type and the text of each. Must not know
trees.
"""

import re
from typing import Final

_NUMBER: Final = re.compile(r"-?[0-9.]+(?:E-?[0-9]+)?(?:[LSYD]|BD)?|CAST\('[^']+' AS (?:FLOAT|DOUBLE)\)")
_WHOLE: Final = re.compile(r"(-?[0-9]+)[LSY]?")
_ZERO: Final = re.compile(r"-?0*(?:[.]0*)?(?:[EBSLDY].*)?|CAST\('-?0*[.]0*' AS (?:FLOAT|DOUBLE)\)")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def text_of(sql: str) -> str | None:
    r"""The value of a text; None for everything else.

    >>> text_of("'it\\'s \\\\d'"), text_of("12"), text_of("DATE '2020-01-01'")
    ("it's \\d", None, None)
    """
    return _ESCAPED.sub(r"\1", sql[1:-1]) if sql.startswith("'") else None


def is_number(sql: str) -> bool:
    """Whether it is a number of whatever type, and not null.

    >>> [is_number(sql) for sql in ("-5", "1.50BD", "1.0E10D", "CAST('1.5' AS FLOAT)", "NULL", "'5'")]
    [True, True, True, True, False, False]
    """
    return _NUMBER.fullmatch(sql) is not None


def whole_number_of(sql: str) -> int | None:
    """The value of a whole number; None for everything else.

    >>> whole_number_of("-5L"), whole_number_of("5BD"), whole_number_of("INTERVAL '1' MONTH")
    (-5, None, None)
    """
    found = _WHOLE.fullmatch(sql)
    return None if found is None else int(found[1])


def is_zero(sql: str) -> bool:
    """Whether it is a number that is zero.

    >>> [is_zero(sql) for sql in ("0", "0.0BD", "-0L", "CAST('0.0' AS FLOAT)", "0.5D", "'0'")]
    [True, True, True, True, False, False]
    """
    return is_number(sql) and _ZERO.fullmatch(sql) is not None


def is_boolean(sql: str) -> bool:
    """Whether it is true or false, and not null."""
    return sql in ("true", "false")
