"""Delegation tokens of HDFS, with which requests go through where a cluster asks for Kerberos.

Who has a ticket fetches one (`hdfs fetchdt`, `dtutil`, or GETDELEGATIONTOKEN of WebHDFS itself) and writes it to the
file that `HADOOP_TOKEN_FILE_LOCATION` names, as for any program of Hadoop's. The file is read for each request, so that
another token may be put there at any time.

Knows Hadoop's three forms of such a file: `Writable` and `protobuf` (org.apache.hadoop.security.Credentials), and the
text that WebHDFS answers (`urlString`). Must not know requests.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final, NamedTuple

FILE_VARIABLE: Final = "HADOOP_TOKEN_FILE_LOCATION"
_MAGIC: Final = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1
_KINDS: Final = ("HDFS_DELEGATION_TOKEN", "WEBHDFS delegation", "SWEBHDFS delegation")
_URL_LETTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")


class TokenFileError(OSError):
    """The file with the token cannot be used."""


class _Token(NamedTuple):
    identifier: bytes
    password: bytes
    kind: bytes
    service: bytes

    def url_text(self) -> str:
        """As a request names it: Hadoop's `Token.encodeToUrlString`."""
        return base64.urlsafe_b64encode(b"".join(_written(part) for part in self)).decode().rstrip("=")


def token() -> str | None:
    """The token that requests go with, None if the environment names no file of one.

    :raises TokenFileError:
    """
    name = os.environ.get(FILE_VARIABLE)
    if not name:
        return None
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise TokenFileError(f"{FILE_VARIABLE} {name}: {error.strerror}") from error
    try:
        return _url_text(content)
    except (IndexError, KeyError, StopIteration, ValueError) as error:
        raise TokenFileError(f"{FILE_VARIABLE} {name} has no delegation token of HDFS") from error


def _url_text(content: bytes) -> str:
    if not content.startswith(_MAGIC):
        text = content.strip()
        if not text or not _URL_LETTERS.issuperset(text):
            raise ValueError
        return text.decode()
    version, rest = content[len(_MAGIC)], content[len(_MAGIC) + 1 :]
    if version not in (_WRITABLE, _PROTOBUF):
        raise ValueError
    tokens = _of_writable(rest) if version == _WRITABLE else _of_protobuf(rest)
    return next(one.url_text() for kind in _KINDS for one in tokens if one.kind.decode() == kind)


# --- Writable: numbers of one byte or, behind a byte that says how many, of several ---------------------------------


def _of_writable(content: bytes) -> list[_Token]:
    count, at = _number(content, 0)
    tokens = []
    for _ in range(count):
        parts = []
        for _ in ("alias", *_Token._fields):
            size, at = _number(content, at)
            if size < 0 or at + size > len(content):
                raise ValueError
            parts.append(content[at : at + size])
            at += size
        tokens.append(_Token(*parts[1:]))
    return tokens


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of `WritableUtils.writeVInt`, and where the next begins. None of ours is negative."""
    first = int.from_bytes(content[at : at + 1], signed=True)
    if at >= len(content) or first < -116:
        raise ValueError
    if first >= -112:
        return first, at + 1
    end = at + 1 + -112 - first
    return int.from_bytes(content[at + 1 : end]), end


def _written(part: bytes) -> bytes:
    size = len(part)
    if size <= 127:
        return bytes((size,)) + part
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return (-112 - len(digits)).to_bytes(1, signed=True) + digits + part


# --- protobuf: CredentialsProto of Hadoop's Security.proto ------------------------------------------------------------

_TOKENS, _TOKEN_OF_ENTRY = 1, 2
_BYTES: Final = 2
"""The wire type of all fields that are looked at here."""


def _of_protobuf(content: bytes) -> list[_Token]:
    size, at = _varint(content, 0)
    tokens = []
    for field, entry in _fields(content[at : at + size]):
        if field == _TOKENS:
            for inner, token_bytes in _fields(entry):
                if inner == _TOKEN_OF_ENTRY:
                    parts = dict(_fields(token_bytes))
                    tokens.append(_Token(*(parts[number] for number in range(1, 5))))
    return tokens


def _fields(content: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(content):
        tag, at = _varint(content, at)
        size, at = _varint(content, at)
        if tag & 7 != _BYTES or at + size > len(content):
            raise ValueError
        found.append((tag >> 3, content[at : at + size]))
        at += size
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while content[at] & 0x80:
        value |= (content[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | content[at] << shift, at + 1
