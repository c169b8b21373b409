"""Timers by key: an action for each key that is run after a fixed time unless it is cancelled or set anew before."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class KeyedTimers(Generic[Key]):
    """At most one timer for each key, all with the same delay. Used on one event loop."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def __iter__(self) -> Iterator[Key]:
        """The keys whose timers run."""
        return iter(self._timers)

    def set(self, key: Key, action: Callable[[], None]) -> None:
        """Start the timer of this key anew; `action` runs when it is over, after the key was removed."""
        self.cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(self._delay_s, partial(self._fire, key, action))

    def _fire(self, key: Key, action: Callable[[], None]) -> None:
        del self._timers[key]
        action()

    def cancel(self, key: Key) -> None:
        """Stop the timer of this key, if there is one."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Stop all timers."""
        for key in tuple(self._timers):
            self.cancel(key)
