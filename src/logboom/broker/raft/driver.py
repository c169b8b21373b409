"""Steps a node: one event after the other, and the time that passes for it.

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
        tick_ms: int,
        *,
        perform: Callable[[Effect], None],
        ticked: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`perform` begins one effect; `ticked` is called after each tick. `failed` is called where the node cannot go
        on; nothing is stepped then."""
        self.node = node
        self._clock = clock
        self._tick_s = tick_ms / 1_000
        self._perform = perform
        self._ticked = ticked
        self._failed = failed
        self._events: deque[Event] = deque()
        self._stepping = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, event: Event) -> None:
        """Let it happen to the node and begin what that answers; behind the event whose effects are being begun."""
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
        """The next tick, if the node needs one: a broker that is alone is not woken up."""
        if self._timer is None and not self._stopped and self.node.needs_ticks:
            self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(TimePassed())
        if not self._stopped:
            self._ticked()


def now_ms(clock: Clock) -> int:
    """Milliseconds of the clock that never goes back."""
    return clock.monotonic_ns() // 1_000_000
