"""Decodes a record's bytes to the text of a line, for every text format.

Knows bytes and newlines. Must not know any format. Rules: a byte order mark at the start and white space and newlines
at the end are removed; bytes that are not UTF-8 become U+FFFD; NUL is kept; no value is None.
"""

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.utf8 import decode_utf8

NO_VALUE = "the record has no value"
EMPTY = "the line is empty"
NO_FIRST_PAIR = "the first word is not a pair"

_BOM = "\ufeff"


def text_lines(values: pa.Array) -> pa.Array:
    """A string array of the same length; null if there is no value."""
    text = decode_utf8(values)
    if pc.any(pc.starts_with(text, _BOM)).as_py():
        text = pc.replace_substring_regex(text, r"\A\x{FEFF}", "")
    return pc.utf8_rtrim(text, " \t\r\n")
