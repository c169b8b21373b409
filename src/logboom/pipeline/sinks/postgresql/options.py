"""The options after the `?` of a PostgreSQL address: their names and valid values in libpq.

Source: "Parameter Key Words" of libpq's documentation, up to version 18. If libpq is installed, it checks the names
itself; it checks values only when it connects. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

from logboom.base.settings import nearest

_SWITCH: Final = ("0", "1")
_NUMBER: Final = re.compile(r"-?\d{1,9}")
_TLS: Final = ("", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "sslcertmode": ("disable", "allow", "require"),
    "sslcompression": _SWITCH,
    "sslsni": _SWITCH,
    "ssl_min_protocol_version": _TLS,
    "ssl_max_protocol_version": _TLS,
    "gssencmode": ("disable", "prefer", "require"),
    "gsslib": ("gssapi",),
    "gssdelegation": _SWITCH,
    "channel_binding": ("disable", "prefer", "require"),
    "load_balance_hosts": ("disable", "random"),
    "keepalives": _SWITCH,
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "min_protocol_version": ("3.0", "3.2", "latest"),
    "max_protocol_version": ("3.0", "3.2", "latest"),
}
_READ_ONLY: Final = ("read-only", "standby")
_NUMBERS: Final = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
_TEXTS: Final = (
    *("host", "hostaddr", "port", "dbname", "user", "options", "application_name", "fallback_application_name"),
    *("sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir", "requirepeer", "krbsrvname", "require_auth"),
    *("client_encoding", "service", "servicefile", "sslkeylogfile", "scram_client_key", "scram_server_key"),
    *("oauth_issuer", "oauth_client_id", "oauth_scope"),
)
_NOT_HERE: Final = ("replication",)


def is_option(name: str) -> bool:
    """Whether libpq has an option of this name."""
    return name in _WORDS or name in (*_NUMBERS, *_TEXTS, *_NOT_HERE)


def option_fault(name: str, value: str) -> str | None:
    """What is wrong with an option, or None.

    >>> option_fault("sslmode", "bad")
    "sslmode should be disable, allow, prefer, require, verify-ca or verify-full, not 'bad'"
    >>> option_fault("sslmode", "verify-full"), option_fault("slmode", "x")
    (None, "slmode is not an option of libpq (did you mean 'sslmode'?)")
    """
    if name in _NOT_HERE:
        return f"{name} is for replicas; leave it out"
    if name in _NUMBERS:
        return None if _NUMBER.fullmatch(value) else f"{name} should be a whole number, not {value!r}"
    if name in _TEXTS:
        return None
    if not is_option(name):
        close = nearest(name, (*_WORDS, *_NUMBERS, *_TEXTS))
        return f"{name} is not an option of libpq" + (f" (did you mean {close!r}?)" if close else "")
    words = _WORDS[name]
    if name == "target_session_attrs" and value in _READ_ONLY:
        return f"{name}={value} asks for a server that takes no rows"
    if value in words:
        return None
    return f"{name} should be {', '.join(words[:-1])} or {words[-1]}, not {value!r}"
