"""Steps a node: one event after the other, and the passing of time.

Knows neither what an effect does nor who waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from logboom.base.ports import Clock
from logboom.raft import Effect, Event, Node, TimePassed


class Driver:
    """Life: made and fed on the loop; `stop`."""

    def __init__(
        self,
        node: Node,
        clock: Clock,
        *,
        perform: Callable[[Effect], None],
        looked: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`perform` begins one effect; `looked` is called after each check of whether the node needs time, on a leader
        with each of its heartbeats. `failed` is called if the node cannot go on; it is stepped no more then."""
        self.node = node
        self._clock = clock
        self._perform = perform
        self._looked = looked
        self._failed = failed
        self._events: deque[Event] = deque()
        self._stepping = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def feed(self, event: Event) -> None:
        """Feed an event to the node and begin the effects that it returns; queued behind an event whose effects are
        being begun."""
        if self._stopped:
            return
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                for effect in self.node.step(self._events.popleft(), now_ms(self._clock)):
                    if not self._stopped:
                        self._perform(effect)
        except Exception as error:  # noqa: BLE001 - outermost: a node that has raised anything must not be stepped again
            self.stop()
            self._failed(error)
        finally:
            self._stepping = False
        self._arm()

    def stop(self) -> None:
        """Step no more. Idempotent."""
        self._stopped = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        """One timer, for when the node next needs time. It is left where that has moved to a later time, as on a
        follower with each heartbeat of its leader; a broker that is alone has none."""
        due_ms = self.node.due_ms
        if due_ms is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = due_ms - now_ms(self._clock) + 1  # the clock of the timer is rounded, too
        self._timer = asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1_000, self._time_is_over)

    def _time_is_over(self) -> None:
        self._timer = None
        due_ms = self.node.due_ms
        if due_ms is not None and now_ms(self._clock) >= due_ms:
            self.feed(TimePassed())
        else:
            self._arm()
        if not self._stopped:
            self._looked()


def now_ms(clock: Clock) -> int:
    """Milliseconds of the monotonic clock."""
    return clock.monotonic_ns() // 1_000_000
