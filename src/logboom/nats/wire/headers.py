"""The header block of a message: `NATS/1.0`, then lines of `Name: value`, then an empty line (NATS ADR-4).

Names come as they are, in their order, and may be there more than once. Blanks around a value are no part of it. What
follows the version on the first line is a status, which servers send and nobody publishes; it is passed over.
"""

from typing import Final, TypeAlias

from logboom.nats.wire.errors import HeaderError

VERSION: Final = b"NATS/1.0"
FIELDS_MAX: Final = 1_024
_END: Final = b"\r\n"
_SHOWN_MAX: Final = 40

Fields: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values in their order. A name is of printable ASCII characters."""


def read_fields(block: bytes) -> Fields:
    """The fields of a block; empty for no block. Raises HeaderError."""
    if not block:
        return []
    first, *lines = block.split(_END, FIELDS_MAX + 3)
    if first != VERSION and not first.startswith(VERSION + b" "):
        raise HeaderError("bad request: a header block does not begin with NATS/1.0")
    if len(lines) > FIELDS_MAX + 2:
        raise HeaderError(f"bad request: a message has more than {FIELDS_MAX} headers")
    if lines[-2:] != [b"", b""]:
        raise HeaderError("bad request: a header block does not end with an empty line")
    del lines[-2:]
    fields: Fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not (colon and name.isascii() and name.decode("ascii").isprintable() and name.strip() == name != b""):
            raise HeaderError(f"bad request: {shown(line)} has no name of a header")
        fields.append((name, value.strip(b" \t")))
    return fields


def write_fields(fields: Fields) -> bytes:
    """The block of these fields, as `read_fields` has them; empty for none.

    >>> write_fields([(b"Trace", b"t-1")])
    b'NATS/1.0\\r\\nTrace: t-1\\r\\n\\r\\n'
    """
    if not fields:
        return b""
    return b"".join((VERSION, _END, *(b"%b: %b\r\n" % field for field in fields), _END))


def shown(text: bytes) -> str:
    """The beginning of a text that a publisher has written, as an error quotes it."""
    return repr(text[:_SHOWN_MAX].decode("utf-8", "replace"))
