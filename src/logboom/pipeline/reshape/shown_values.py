"""Values as the reasons of dead letters show them."""

from typing import Any, Final

import msgspec

_SHOWN_MAX: Final = 60
_encode: Final = msgspec.json.Encoder().encode


def shortened(value: Any) -> str:
    """A value as JSON, cut off where it is long."""
    text = _encode(value).decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
