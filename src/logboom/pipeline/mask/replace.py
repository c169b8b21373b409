"""What is put in the place of a find: a keyed hash, a name, or all but the end starred out.

It knows one rule and one found text at a time. It must not know columns or JSON. A replacement is plain text without
quotes or backslashes, so it can be put into JSON as it is, unless the user's own has some.
"""

import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from logboom.pipeline.mask.rules import MaskRule

HASH_DIGITS: Final = 16
_MEMORY_MAX: Final = 65_536
_REMEMBERED_BYTES_MAX: Final = 128

Replace = Callable[[bytes], bytes]


def replacer(rule: MaskRule, key: bytes | None) -> Replace:
    """A function from a found text (UTF-8) to its replacement."""
    redacted = rule.replacement if rule.replacement is not None else f"[{rule.label}]"
    if rule.action == "redact":
        fixed = redacted.encode()
        return lambda found: fixed
    if rule.action == "keep_last":
        return lambda found: keep_last(found, rule.keep, digits_only=rule.kind == "card")
    assert key is not None, "the compiler refuses a hash without a key"
    return _Hashes(rule, key)


def keep_last(found: bytes, keep: int, *, digits_only: bool) -> bytes:
    """Stars but for the last `keep` characters, of which at most half of the text's are kept; an `@` is never kept.

    >>> keep_last(b"4111 1111 1111 1234", 4, digits_only=True)
    b'**** **** **** 1234'
    """
    text = found.decode(errors="replace")
    if digits_only:
        cut = len(text)
        for _ in range(min(keep, len(text) // 2)):
            cut -= 1
            while not text[cut].isdigit():
                cut -= 1
        return (text[:cut].translate(_STARRED_DIGITS) + text[cut:]).encode()
    kept = min(keep, len(text) // 2)
    tail = text[len(text) - kept :].translate(_NEVER_KEPT)
    return ("*" * (len(text) - kept) + tail).encode()


_STARRED_DIGITS: Final = str.maketrans("0123456789", "*" * 10)
_NEVER_KEPT: Final = {ord(character): "*" for character in '@%:"\\'} | dict.fromkeys(range(32), "*")


class _Hashes:
    """HMAC-SHA-256 (RFC 2104) of the found text in its plain form, so that one card with and without dashes, or one
    address in capitals, has one hash. Remembers what it has hashed."""

    def __init__(self, rule: MaskRule, key: bytes) -> None:
        self._label = rule.label
        self._key = key
        self._plain = _PLAIN.get(rule.kind)
        self._known: dict[bytes, bytes] = {}

    def __call__(self, found: bytes) -> bytes:
        known = self._known.get(found)
        if known is None:
            if len(self._known) >= _MEMORY_MAX:
                self._known.clear()
            known = self._hash(found)
            if len(found) <= _REMEMBERED_BYTES_MAX:
                self._known[found] = known
        return known

    def _hash(self, found: bytes) -> bytes:
        plain = found if self._plain is None else self._plain(found)
        digest = hmac.digest(self._key, plain, "sha256").hex()
        # Sixteen digits in a row could be taken for a card number; one window in two thousand is that.
        windows = (digest[start : start + HASH_DIGITS] for start in range(len(digest) - HASH_DIGITS + 1))
        window = next((window for window in windows if not window.isdigit()), "f" * HASH_DIGITS)
        return f"[{self._label}:{window}]".encode()


def _plain_address(found: bytes) -> bytes:
    return ipaddress.IPv6Address(found.decode()).compressed.encode()


def _plain_email(found: bytes) -> bytes:
    return found.decode(errors="replace").lower().replace("%40", "@").encode()


def _plain_card(found: bytes) -> bytes:
    return found.replace(b" ", b"").replace(b"-", b"")


_PLAIN: Final[Mapping[str, Replace]] = {"card": _plain_card, "email": _plain_email, "ipv6": _plain_address}


_NOT_PLAIN: Final = re.compile(rb'["\\\x00-\x1f]')


def in_json(text: bytes) -> bytes:
    """A replacement as it has to be written between the quotes of a JSON string."""
    if _NOT_PLAIN.search(text) is not None:
        return msgspec.json.encode(text.decode(errors="replace"))[1:-1]
    return text
