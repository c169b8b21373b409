"""Errors as bytes: what a handler raises here is raised at the broker that has asked, with class, text and fields.

A class that the other broker does not know, because it is of another version, becomes the nearest base that it knows.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from logboom.base.errors import LogboomError
from logboom.base.ports import Bytes

_Failure = tuple[list[str], str, dict[str, Any]]
_DECODER: Final = msgspec.msgpack.Decoder(_Failure)
_PLAIN: Final = (str, int, float, bool, bytes, type(None))


def encode_failure(error: LogboomError) -> bytes:
    """An error, without fields whose values are not plain."""
    classes = [one for one in type(error).__mro__ if issubclass(one, LogboomError)]
    fields = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return msgspec.msgpack.encode(([_name(one) for one in classes], str(error), fields))


def decode_failure(data: Bytes) -> LogboomError:
    """The error. Raises ValueError where the bytes are none."""
    try:
        names, text, fields = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as fault:
        raise ValueError(str(fault)) from None
    known: Mapping[str, type[LogboomError]] = {_name(one): one for one in _subclasses(LogboomError)}
    found = next((known[name] for name in names if name in known), LogboomError)
    # Not through __init__, which may want more than a text and a limit.
    error = found.__new__(found)
    error.args = (text,)
    vars(error).update({"limit": ""} | fields)
    return error


def _name(kind: type[LogboomError]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _subclasses(kind: type[LogboomError]) -> Iterator[type[LogboomError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _subclasses(one)


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    # Exact types: an enumeration is an int or a text too, and would arrive as one.
    return type(value) in _PLAIN
