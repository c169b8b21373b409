"""Compress and decompress the records of a batch; the limit holds while decompressing, never after.

Output goes into a buffer that is never longer than the limit, so a decompression bomb costs that much memory and the
time to fill it, no more.
"""

from functools import partial
from struct import Struct
from typing import Final

import cramjam

from logboom.base.errors import CorruptBatchError, MessageTooLargeError
from logboom.base.ports import Bytes
from logboom.records.header import Codec

LEVELS_DEFAULT: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""As in Kafka. -1 is the library's own level. Level 9 of lz4 is its fast mode there too, every other its slow one."""

_INT = Struct(">i")
_LITTLE_INT = Struct("<I")

# snappy-java's stream format: this header, then length-prefixed raw blocks (org.xerial.snappy.SnappyOutputStream).
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + _INT.pack(1) + _INT.pack(1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

# A frame header with independent blocks of up to 64 KiB, no checksums, no content size, and the hash of those flags:
# what Kafka's own Java reader takes (it refuses linked blocks, which cramjam's frames have).
_LZ4_FRAME_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_FRAME_END: Final = bytes(4)
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_FRAME_TAIL_BYTES: Final = 12
"""What follows the block in a frame of cramjam's: its checksum, the end and another checksum. The header is as ours."""
_LZ4_STORED_BIT: Final = 1 << 31

_FIRST_GUESS_BYTES: Final = 128 * 1024
_GUESSED_RATIO: Final = 8
_GROWTH: Final = 4

_SPARE_MAX_BYTES: Final = _GUESSED_RATIO * 1024 * 1024
_spare: Final[list[bytearray]] = []
"""A buffer to decompress into, if no thread uses it right now. A new one for each batch costs its zeroing and more."""

_DECOMPRESS = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: Codec, payload: Bytes, *, level: int | None = None) -> bytes:
    """The payload in the framing that Java's clients write. Without a level, in the codec's default of Kafka."""
    if level is None:
        level = LEVELS_DEFAULT.get(codec, 0)
    match codec:
        case Codec.NONE:
            return bytes(payload)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(payload, None if level < 0 else level))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(payload))
        case Codec.LZ4:
            return _compress_lz4(memoryview(payload), level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(payload, level=level))


def decompress(codec: Codec, payload: Bytes, limit: int) -> bytes:
    """The payload decompressed, at most `limit` bytes.

    Snappy is read raw and in snappy-java's framing, gzip, lz4 and zstd as any number of frames one after another.
    MessageTooLargeError above the limit, CorruptBatchError where the bytes are no such stream.
    """
    if codec is Codec.NONE:
        if len(payload) > limit:
            raise _too_large(limit)
        return bytes(payload)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(bytes(payload), limit)
    return _decompress_frames(codec, payload, limit)


def _too_large(limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"The records of a batch decompress to more than {limit} bytes.", limit="broker.max_decompressed_bytes"
    )


def _corrupt(codec: Codec, reason: object) -> CorruptBatchError:
    return CorruptBatchError(f"The records of a batch are no {codec.name.lower()} stream: {reason}.")


def _decompress_frames(codec: Codec, payload: Bytes, limit: int) -> bytes:
    """Guess the size, and try again with a larger buffer up to the limit.

    The size that a frame may claim for itself is not used: many clients leave it out, and it may be a lie.
    """
    size = min(limit, max(_FIRST_GUESS_BYTES, _GUESSED_RATIO * len(payload)))
    while True:
        out = _buffer(size)
        try:
            written = _DECOMPRESS[codec](payload, memoryview(out)[:size])
            return bytes(memoryview(out)[:written])
        except cramjam.DecompressionError as error:
            if size < limit:
                size = min(limit, size * _GROWTH)
                continue
            if "whole buffer" in str(error):
                raise _too_large(limit) from None
            raise _corrupt(codec, error) from None
        finally:
            if not _spare and len(out) <= _SPARE_MAX_BYTES:
                _spare.append(out)


def _buffer(size: int) -> bytearray:
    """At least this many bytes, of any content."""
    try:
        out = _spare.pop()
    except IndexError:
        return bytearray(size)
    return out if len(out) >= size else bytearray(size)


def _decompress_snappy(payload: bytes, limit: int) -> bytes:
    if not payload.startswith(_XERIAL_MAGIC):
        return _raw_snappy(payload, limit)
    parts: list[bytes] = []
    position, left = 0, limit
    while position < len(payload):
        if payload.startswith(_XERIAL_MAGIC, position):
            # A stream may be followed by another one.
            position += len(_XERIAL_HEADER)
            if position > len(payload):
                raise _corrupt(Codec.SNAPPY, "its header is cut")
            continue
        start = position + _INT.size
        length = _INT.unpack_from(payload, position)[0] if start <= len(payload) else -1
        position = start + length
        if length < 0 or position > len(payload):
            raise _corrupt(Codec.SNAPPY, "a block is cut")
        part = _raw_snappy(payload[start:position], left, limit)
        left -= len(part)
        parts.append(part)
    return b"".join(parts)


def _raw_snappy(block: bytes, left: int, limit: int | None = None) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_large(left if limit is None else limit)
        out = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None
    return bytes(out) if written == size else bytes(out[:written])


def _compress_xerial(payload: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT.pack(len(block)) + block
    return bytes(out)


def _compress_lz4(payload: memoryview, level: int) -> bytes:
    pack = _fast_lz4_block if level == LEVELS_DEFAULT[Codec.LZ4] else partial(_slow_lz4_block, level)
    out = bytearray(_LZ4_FRAME_HEADER)
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        out += pack(payload[start : start + _LZ4_BLOCK_BYTES])
    return bytes(out + _LZ4_FRAME_END)


def _fast_lz4_block(plain: memoryview) -> bytes:
    """A block with its length."""
    block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if len(block) < len(plain):
        return _LITTLE_INT.pack(len(block)) + block
    return _LITTLE_INT.pack(len(plain) | _LZ4_STORED_BIT) + plain


def _slow_lz4_block(level: int, plain: memoryview) -> bytes:
    """The same at a level: the one block of a frame, since cramjam's `compress_block` ignores levels."""
    frame = bytes(cramjam.lz4.compress(plain, level))
    return frame[len(_LZ4_FRAME_HEADER) : -_LZ4_FRAME_TAIL_BYTES]
