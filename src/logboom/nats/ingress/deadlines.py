"""What is to be done about some things a while from now, unless something else happens to them before."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """One timer at most for each key, all of them equally long. On one loop."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def __iter__(self) -> Iterator[Key]:
        """The keys that have one."""
        return iter(self._timers)

    def set(self, key: Key, action: Callable[[], None]) -> None:
        """Do that once the time is over; the key is not there any more then."""
        self.cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(self._after_s, partial(self._fire, key, action))

    def _fire(self, key: Key, action: Callable[[], None]) -> None:
        del self._timers[key]
        action()

    def cancel(self, key: Key) -> None:
        """Do nothing about it."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """The same for all."""
        for key in tuple(self._timers):
            self.cancel(key)
