"""One value as a text that only the holder of a key reads: AES-256-GCM (NIST SP 800-38D).

The text is `enc:v1:KEY_NAME:DATA`, DATA being base64url without padding of 12 bytes of nonce, the encrypted JSON of
the value, and the 16 bytes of the tag. The name is authenticated with it. A batch that is repeated has to give the
same bytes, so the nonce is no random number but an HMAC-SHA-256, under a key of its own, of what makes the value unique
(event id and field) and of the value itself, as in SIV modes (RFC 5297): two different values have different nonces, up
to the chance of 96 bits. Both keys come out of the given one by HKDF-SHA-256 (RFC 5869), so it may be any text of 16
bytes or more.

Knows only bytes.
"""

import base64
import binascii
import hmac
import re
from typing import Any, Final

import msgspec

SEALED: Final = re.compile(r"enc:v1:([A-Za-z0-9_.-]{1,80}):([A-Za-z0-9_-]{38,})")
KEY_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_encode = msgspec.json.Encoder().encode


class Cipher:
    """Encrypts and decrypts under one key."""

    def __init__(self, name: str, key: bytes) -> None:
        """`name`: what the texts call it. `key`: at least 16 bytes that nobody can guess."""
        # Loaded where it is needed: every pipeline reads this module, and few encrypt.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        self.name = name
        derived = HKDF(SHA256(), 2 * _KEY_BYTES, salt=None, info=b"logboom encrypt v1").derive(key)
        self._aead = AESGCM(derived[:_KEY_BYTES])
        self._nonce_key = derived[_KEY_BYTES:]
        self._head = f"enc:v1:{name}:"

    def seal(self, value: Any, place: bytes) -> str:
        """The value, anything that JSON can write, as a text. `place`: differs for every value that is sealed."""
        plain = _encode(value)
        message = len(place).to_bytes(8, "big") + place + plain
        nonce = hmac.digest(self._nonce_key, message, "sha256")[:_NONCE_BYTES]
        data = nonce + self._aead.encrypt(nonce, plain, self._head.encode())
        return self._head + base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def open(self, text: str) -> Any:
        """The value again; ValueError if the text is not whole, or was sealed under another key."""
        from cryptography.exceptions import InvalidTag

        match = SEALED.fullmatch(text)
        if match is None or match[1] != self.name:
            raise ValueError("it was not sealed under this key")
        try:
            data = base64.b64decode(match[2] + "=" * (-len(match[2]) % 4), b"-_", validate=True)
            plain = self._aead.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], self._head.encode())
        except (InvalidTag, binascii.Error) as error:
            raise ValueError("it was changed, or sealed under another key of this name") from error
        return msgspec.json.decode(plain)
