"""Acks of messages that were stored, in the form in which they are published on the reply subjects. Pure."""

from collections.abc import Sequence
from typing import Final

from logboom.nats.link import commands
from logboom.nats.wire.acks import ack

_TOGETHER_MIN: Final = 2
_BLOCK: Final = 1_000
_LAST_DIGITS: Final = tuple(b"%03d" % number for number in range(_BLOCK))
"""Of the numbers of a block."""
_PIECES: Final = 4
"""Of each ack: what stands before its reply subject, that, what stands behind it, the last digits of its sequence."""


def acks_of(stream: str, replies: Sequence[bytes], offsets: Sequence[int]) -> bytes:
    """What is sent to those who want it of messages that were stored at these offsets; none of them is a duplicate.

    >>> acks_of("orders", [b"a", b"", b"b"], [7, 8, 9])
    b'PUB a 27\\r\\n{"stream":"orders","seq":8}\\r\\nPUB b 28\\r\\n{"stream":"orders","seq":10}\\r\\n'
    """
    if not all(replies):
        wanted = [(reply, at) for reply, at in zip(replies, offsets, strict=True) if reply]
        replies, offsets = [reply for reply, _ in wanted], [at for _, at in wanted]
    if len(replies) < _TOGETHER_MIN or len(first := ack(stream, min(offsets))) != len(ack(stream, max(offsets))):
        return b"".join([commands.publish(reply, ack(stream, at)) for reply, at in zip(replies, offsets, strict=True)])
    if isinstance(offsets, range) and offsets[0] >= _BLOCK:
        return _acks_of_a_row(stream, replies, offsets, len(first))
    # All are of one length, so only subject and number differ: one text for all takes half the time of one for each.
    template = b'PUB %%b %d\r\n{"stream":"%b","seq":%%d}\r\n' % (len(first), stream.encode())
    gaps: list[bytes | int] = [0] * (2 * len(replies))
    gaps[::2] = replies
    gaps[1::2] = map((1).__add__, offsets)
    return template * len(replies) % tuple(gaps)


def _acks_of_a_row(stream: str, replies: Sequence[bytes], offsets: range, body_bytes: int) -> bytes:
    """The same for offsets that follow each other, whose acks are of one length: no number is formatted, which is most
    of the time."""
    pieces = [b"}\r\nPUB "] * (_PIECES * len(replies))
    pieces[0] = b"PUB "
    pieces[1::_PIECES] = replies
    sequence, at = offsets[0] + 1, 0
    while at < len(replies):
        block, first = divmod(sequence, _BLOCK)
        count = min(_BLOCK - first, len(replies) - at)
        start, stop = _PIECES * at, _PIECES * (at + count)
        pieces[start + 2 : stop : _PIECES] = [
            b' %d\r\n{"stream":"%b","seq":%d' % (body_bytes, stream.encode(), block)
        ] * count
        pieces[start + 3 : stop : _PIECES] = _LAST_DIGITS[first : first + count]
        sequence, at = sequence + count, at + count
    pieces.append(b"}\r\n")
    return b"".join(pieces)
