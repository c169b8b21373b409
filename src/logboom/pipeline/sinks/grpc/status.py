"""Maps the status of a gRPC call to a target's error: retry, refused request, or give up.

Sources: https://grpc.io/docs/guides/status-codes/, and "OTLP/gRPC" of the OpenTelemetry Protocol Specification 1.5 for
the codes to retry. Codes are compared by name, so that grpcio is not needed. Pure.
"""

from collections.abc import Mapping
from typing import Final

from logboom.base.errors import LogboomError
from logboom.pipeline.sinks.bulk.target import GiveUpError, RefusedWholeError, TryAgainError
from logboom.pipeline.sinks.http.protobuf import fields_of


class NotFoundError(GiveUpError):
    """NOT_FOUND: the resource of the call does not exist."""


class AlreadyExistsError(RefusedWholeError):
    """ALREADY_EXISTS: the server has this from an earlier call."""


class TooLargeError(RefusedWholeError):
    """The message is larger than the server accepts."""


NAMES: Final[Mapping[int, str]] = dict(
    enumerate(
        (
            *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
            *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
            *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
        )
    )
)
"""Of google.rpc.Code."""
_REFUSED: Final = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE")
_GIVE_UP: Final = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
_TOO_LARGE: Final = "larger than max"
"""gRPC's own libraries refuse a message for its size with the code for overload and these texts."""
_RETRY_INFO: Final = b"google.rpc.RetryInfo"
_PAUSE_MAX_S: Final = 3_600.0
_TEXT_MAX: Final = 400


def meaning(place: str, code: str, details: str, status: bytes | None) -> LogboomError:
    """The target's error for a status. `status`: the trailer `grpc-status-details-bin`, a google.rpc.Status.

    >>> type(meaning("h", "UNAUTHENTICATED", "no", None)).__name__
    'GiveUpError'
    """
    text = " ".join(details.split())
    text = text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
    reason = f"{place} answered {code}" + (f": {text}" if text else "")
    if code == "NOT_FOUND":
        return NotFoundError(reason)
    if code == "ALREADY_EXISTS":
        return AlreadyExistsError(reason)
    if code in _GIVE_UP:
        return GiveUpError(reason)
    if code == "RESOURCE_EXHAUSTED" and _TOO_LARGE in details:
        return TooLargeError(reason)
    if code in _REFUSED:
        return RefusedWholeError(reason)
    if code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"):
        return TryAgainError(reason, pause_s=retry_delay(status), is_overload=code == "RESOURCE_EXHAUSTED")
    return TryAgainError(reason, pause_s=retry_delay(status))


def retry_delay(status: bytes | None) -> float | None:
    """The seconds that a google.rpc.RetryInfo in a status asks to wait, at most an hour; None if it has none."""
    try:
        for field, detail in fields_of(status or b""):
            if field != 3 or not isinstance(detail, bytes):
                continue
            parts = dict(fields_of(detail))
            kind, value = parts.get(1), parts.get(2)
            if isinstance(kind, bytes) and kind.endswith(_RETRY_INFO) and isinstance(value, bytes):
                delay = dict(fields_of(value)).get(1)
                duration = dict(fields_of(delay)) if isinstance(delay, bytes) else {}
                seconds, nanos = duration.get(1, 0), duration.get(2, 0)
                if isinstance(seconds, int) and isinstance(nanos, int):
                    return min(seconds + nanos / 1e9, _PAUSE_MAX_S)
    except ValueError:
        return None  # only a hint, so a status that cannot be read is ignored
    return None
