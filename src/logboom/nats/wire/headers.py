"""The header block of a message: `NATS/1.0`, then lines of `Name: value`, then an empty line (NATS ADR-4).

Names come as they are, in their order, and may be there more than once. Spaces around a value are no part of it.
"""

from typing import Final, TypeAlias

from logboom.base.errors import LogboomError

VERSION: Final = b"NATS/1.0"
FIELDS_MAX: Final = 1_024
_END: Final = b"\r\n"

Fields: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values in their order."""


class HeaderError(LogboomError):
    """Bytes that are no header block."""


def read_fields(block: bytes) -> Fields:
    """The fields of a block; empty for no block. Raises HeaderError."""
    if not block:
        return []
    first, *lines = block.split(_END)
    if first != VERSION and not first.startswith(VERSION + b" "):
        raise HeaderError("a header block that does not begin with NATS/1.0")
    if lines[-2:] != [b"", b""]:
        raise HeaderError("a header block that does not end with an empty line")
    if len(lines) - 2 > FIELDS_MAX:
        raise HeaderError(f"more than {FIELDS_MAX} headers")
    fields = []
    for line in lines[:-2]:
        name, colon, value = line.partition(b":")
        if not colon or not name or not name.isascii() or name != name.strip():
            raise HeaderError(f"a header without a name: {line[:40]!r}")
        fields.append((name, value.strip(b" \t")))
    return fields
