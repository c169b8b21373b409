"""The pauses between retries, and a function call with retries.

Pauses have full jitter: a random part of a limit that doubles (AWS Architecture Blog, "Exponential Backoff And
Jitter"), unless the server asks for a pause. Knows the errors of targets. Must not know any particular server.
"""

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from logboom.pipeline.sinks.bulk.target import TryAgainError

Result = TypeVar("Result")

_PAUSE_FIRST_S: Final = 0.25
_PAUSE_MAX_S: Final = 20.0


def pause_s(tries: int, asked_s: float | None, chance: Callable[[], float]) -> float:
    """The pause in seconds before retry number `tries` (from 0). `asked_s`: the pause that the server asks for, if any.

    >>> pause_s(3, None, lambda: 0.5), pause_s(3, 7.0, lambda: 0.5)
    (1.0, 7.0)
    """
    if asked_s is not None:
        return asked_s
    bound_s: float = min(_PAUSE_FIRST_S * 2 ** min(tries, 10), _PAUSE_MAX_S)
    return bound_s * chance()


def tried_again(
    call: Callable[[], Result],
    retry_for_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
    chance: Callable[[], float] = random.random,
) -> Result:
    """Call a function, with retries for this many seconds from the first failure.

    :raises TryAgainError: the last failure, if the next retry would be too late. Other errors are not retried.
    """
    ends_at: float | None = None
    tries = 0
    while True:
        try:
            return call()
        except TryAgainError as error:
            ends_at = now() + retry_for_s if ends_at is None else ends_at
            wait_s = pause_s(tries, error.pause_s, chance)
            if now() + wait_s > ends_at:
                raise
        tries += 1
        pause(wait_s)
