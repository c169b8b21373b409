"""Maps the status of an answer to a result: accepted, retry, refused request, or give up. Knows only HTTP.

See RFC 9110, section 15. The file of a product handles its differences.
"""

import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from logboom.pipeline.sinks.bulk.target import GiveUpError, RefusedWholeError, TryAgainError

_TEXT_MAX: Final = 400
_PAUSE_MAX_S: Final = 3_600.0
REFUSED: Final = (400, 406, 409, 411, 413, 414, 415, 422, 431)
"""Status codes that blame the content of the request."""
_OVERLOAD: Final = (429, 503)
_AGAIN: Final = (408, 421, 425)
_PAGES: Final = (b"<!doctype html", b"<html")


class HttpAnswer(NamedTuple):
    """What a server answered."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes


def check_status(
    answer: HttpAnswer, place: str, *, refused: Collection[int] = REFUSED, may_be_page: bool = False
) -> None:
    """Return if the request was accepted; otherwise raise the target's error. `place`: the server, for messages.

    No product answers an accepted request with a page of HTML. A proxy that asks for a sign-in does, and stores
    nothing. `may_be_page`: any kind of server may answer, so a page is an answer like others.
    """
    status = answer.status
    is_page = not may_be_page and answer.body[:64].lstrip().lower().startswith(_PAGES)
    if 200 <= status < 300 and not is_page:
        return
    reason = f"{place} answered {described(answer)}"
    if 200 <= status < 300:
        raise TryAgainError(f"{reason}, a page of HTML: a proxy seems to answer in place of the server")
    if status in _OVERLOAD:
        raise TryAgainError(reason, pause_s=retry_after(answer), is_overload=True)
    if status in _AGAIN or status >= 500 or status < 200:
        raise TryAgainError(reason, pause_s=retry_after(answer))
    if status in refused:
        raise RefusedWholeError(reason)
    if 300 <= status < 400:
        raise GiveUpError(f"{reason}, a redirect to {answer.headers.get('location', 'nowhere')}: name that address")
    if status in (401, 403, 407):
        raise GiveUpError(f"{reason}: the credential is refused")
    raise GiveUpError(reason)


def described(answer: HttpAnswer) -> str:
    """Status and text of an answer, shortened.

    >>> described(HttpAnswer(400, "Bad Request", {}, b"no such field"))
    '400 Bad Request: no such field'
    """
    text = " ".join(answer.body[: 4 * _TEXT_MAX].decode("utf-8", errors="replace").split())
    text = text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
    return f"{answer.status} {answer.phrase}".strip() + (f": {text}" if text else "")


def retry_after(answer: HttpAnswer) -> float | None:
    """Seconds that the server asks to wait (RFC 9110, 10.2.3), at most an hour; None if it does not ask.

    >>> retry_after(HttpAnswer(429, "", {"retry-after": "7"}, b""))
    7.0
    """
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        from email.utils import parsedate_to_datetime

        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        now = datetime.now(UTC)
        seconds = (when - now if when.tzinfo is not None else when.replace(tzinfo=UTC) - now).total_seconds()
    return None if math.isnan(seconds) else min(max(seconds, 0.0), _PAUSE_MAX_S)
