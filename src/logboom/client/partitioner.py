"""Which partition a key belongs to: Kafka's own hash, so that other clients would choose the same."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash that Kafka's Java client puts keys into partitions by (murmur2, 32 bit).

    >>> murmur2(b"21")
    3321034988
    """
    length = len(key)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        mixed = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        mixed = (mixed ^ (mixed >> 24)) * _M & _MASK
        value = (value * _M & _MASK) ^ mixed
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of `key` among `partitions`.

    >>> partition_of(b"21", 12)
    0
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
