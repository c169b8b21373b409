"""Files with their checksums beside them, as Hadoop's local file system writes both, and Spark with it."""

import zlib
from pathlib import Path
from typing import Final

SUMS_OF: Final = 512
"""Bytes that each checksum is for."""


def as_spark_writes(path: Path, data: bytes) -> Path:
    """Write a file and its checksums, and the directories above them; the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    sums = [zlib.crc32(data[at : at + SUMS_OF]).to_bytes(4) for at in range(0, len(data), SUMS_OF)]
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + SUMS_OF.to_bytes(4) + b"".join(sums))
    return path
