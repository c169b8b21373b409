"""Bytes of records as text. Knows only Arrow."""

import pyarrow as pa


def decode_utf8(values: pa.Array) -> pa.Array:
    """Bytes as text of the same length; bytes that are not UTF-8 become U+FFFD, null stays null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode(errors="replace") for value in values.to_pylist())
        return pa.array(texts, pa.string())
