"""Who this client is to NATS. Secrets come from files, are read for each log-in, and appear in no message and no log.

https://docs.nats.io/reference/reference-protocols/nats-protocol#connect; a credentials file is what `nsc` writes: a
user's JWT and the seed of its key between lines of dashes.
"""

import base64
import re
from pathlib import Path
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.units import KIB
from logboom.nats.config import NatsConfig

_FILE_BYTES_MAX: Final = 64 * KIB
_BLOCK: Final = re.compile(rb"-{3,}BEGIN [^-\n]+-{3,}\s*([^\s-]\S*)\s*-{3,}END [^-\n]+-{3,}")


class CredentialsError(LogboomError):
    """A file with a secret cannot be used."""


class Credentials:
    """What a login needs of the settings."""

    def __init__(self, config: NatsConfig) -> None:
        self._config = config

    def check(self) -> None:
        """Whether every file can be read and holds what it should. Raises CredentialsError."""
        self.options("nonce")

    def options(self, nonce: str | None) -> dict[str, object]:
        """The part of the login that says who this client is; `nonce` is to be signed. Raises CredentialsError."""
        config = self._config
        options: dict[str, object] = {}
        if config.user is not None:
            options["user"] = config.user
        if config.password_file is not None:
            options["pass"] = _text(config.password_file, "nats.password_file")
        if config.token_file is not None:
            options["auth_token"] = _text(config.token_file, "nats.token_file")
        if config.nkey_file is not None:
            seed = _secret(config.nkey_file, "nats.nkey_file").strip()
            options |= _signature(seed, nonce, config.nkey_file, with_key=True)
        if config.credentials_file is not None:
            blocks = _BLOCK.findall(_secret(config.credentials_file, "nats.credentials_file"))
            if len(blocks) < 2:  # the user's token and its key
                raise CredentialsError(
                    f"nats.credentials_file {config.credentials_file} should hold a user's JWT and the seed of its key"
                )
            options["jwt"] = blocks[0].decode("ascii", "replace")
            options |= _signature(blocks[1], nonce, config.credentials_file, with_key=False)
        return options


def _signature(seed: bytes, nonce: str | None, path: Path, *, with_key: bool) -> dict[str, object]:
    import nkeys  # a server that asks for no key needs no cryptography in memory

    try:
        pair = nkeys.from_seed(seed)
        options: dict[str, object] = {"nkey": pair.public_key.decode()} if with_key else {}
        if nonce is not None:
            options["sig"] = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
    except (nkeys.NkeysError, ValueError):
        raise CredentialsError(f"{path} holds no seed of an nkey of a user (it begins with SU)") from None
    return options


def _text(path: Path, setting: str) -> str:
    try:
        return _secret(path, setting).strip().decode()
    except UnicodeDecodeError:
        raise CredentialsError(f"{setting} {path} should be UTF-8 text") from None


def _secret(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise CredentialsError(f"cannot read {setting} {path}: {error.strerror}") from None
