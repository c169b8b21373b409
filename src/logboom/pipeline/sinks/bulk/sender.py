"""Sends the requests of one task: several at once, again where that may help, cut in halves where one is refused whole.

Knows targets and time. Must not know records, Spark or any particular server.

A request is tried again for `retry_for_s`, counted from its first failure, after the pauses of `backoff`. When the time
is over, or a target gives up, nothing new begins; what is under way is waited for, and the task reports what was not
sent. A request that has no end is ended with its connection after `request_max_s`.
"""

import heapq
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from logboom.pipeline.sinks.bulk.adaptive_concurrency import AdaptiveConcurrency
from logboom.pipeline.sinks.bulk.backoff import pause_s
from logboom.pipeline.sinks.bulk.requests import halves
from logboom.pipeline.sinks.bulk.target import BulkResponse, GiveUpError, Item, RefusedWholeError, Target, TryAgainError

_TELL_S: Final = 1.0
"""How long a thread may take to tell what came of a request whose connection was ended."""
_REFUSED_ALL: Final = 32
"""So many events of a task refused one by one, and none taken: the fault of more is hardly theirs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How requests are sent."""

    concurrency: int
    per_second: float | None
    retry_for_s: float
    request_max_s: float
    """No request takes longer: its own timeouts are shorter, this one is for servers that trickle."""


@dataclass(slots=True)
class Sent:
    """What became of the items of a task."""

    taken: dict[str, list[int]] = field(default_factory=dict)
    """By place, the offsets of records whose events the server has, `repeats` of which it had before."""
    count: int = 0
    """How many `taken` has."""
    repeats: int = 0
    error: str | None = None
    """Why the rest was not sent; None if all was."""


@dataclass(slots=True, order=True)
class _Request:
    due: float
    number: int
    items: list[Item] = field(compare=False)
    tries: int = field(default=0, compare=False)
    failed_at: float | None = field(default=None, compare=False)
    begun_at: float = field(default=0.0, compare=False)


class Sender:
    """One task's way to a target. Used once."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        refuse: Callable[[Item, str], None],
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`refuse` is given each item that the server refuses for good, with its reason."""
        self._target = target
        self._settings = settings
        self._refuse = refuse
        self._now, self._pause, self._chance = now, pause, chance
        self._concurrency = AdaptiveConcurrency(settings.concurrency, settings.per_second)
        self._running: dict[Future[BulkResponse], _Request] = {}
        self._delayed: list[_Request] = []
        self._number = 0
        self._refused_alone = 0
        self.sent = Sent()

    def run(self, requests: Iterable[list[Item]]) -> Sent:
        """Until everything is taken or refused, or sending has failed."""
        source = iter(requests)
        pool = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="sink")
        try:
            has_more = True
            while has_more or self._running or self._delayed:
                has_more = self._begin(pool, source) if self.sent.error is None else False
                if self.sent.error is not None:
                    self._delayed.clear()
                next_at = self._next_at(has_more=has_more)
                if self._running:
                    self._await(next_at)
                elif self._delayed or has_more:
                    self._pause(max(next_at - self._now(), 0.0))
            return self.sent
        finally:
            if self._running:  # left by an error of ours or by one that hangs: their threads end with the connections
                self._target.close()
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, pool: ThreadPoolExecutor, source: Iterator[list[Item]]) -> bool:
        """Starts as many requests as may be under way; whether there may be more behind."""
        while len(self._running) < self._concurrency.allowed and self._concurrency.opens_at() <= self._now():
            request = self._due()
            if request is None:
                if len(self._running) + len(self._delayed) >= self._settings.concurrency:
                    return True  # what waits comes first: it must not grow without bound, nor be overtaken by much
                items = next(source, None)
                if items is None:
                    return False
                request = self._new(items)
            now = self._now()
            self._concurrency.begun(now)
            request.begun_at = now
            self._running[pool.submit(self._target.send, request.items)] = request
        return True

    def _new(self, items: list[Item], *, due: float = 0.0) -> _Request:
        self._number += 1
        return _Request(due, self._number, items)

    def _due(self) -> _Request | None:
        if self._delayed and self._delayed[0].due <= self._now():
            return heapq.heappop(self._delayed)
        return None

    def _next_at(self, *, has_more: bool) -> float:
        """When another request may begin, as far as that depends on time."""
        if len(self._running) >= self._concurrency.allowed or not (has_more or self._delayed):
            return math.inf
        is_full = len(self._running) + len(self._delayed) >= self._settings.concurrency
        waits = self._delayed and (is_full or not has_more)
        return max(self._delayed[0].due if waits else self._now(), self._concurrency.opens_at())

    def _await(self, next_at: float) -> None:
        """Until a request has ended or another may begin; ends the connections of those that take too long."""
        longest_s = self._settings.request_max_s
        ends_by = min(request.begun_at for request in self._running.values()) + longest_s
        done, _ = wait(
            self._running, timeout=max(min(ends_by, next_at) - self._now(), 0.001), return_when=FIRST_COMPLETED
        )
        for future in done:
            self._take(self._running.pop(future), future)
        if not done and self._now() >= ends_by:
            self._end_late(longest_s)

    def _end_late(self, longest_s: float) -> None:
        """A thread whose connection ends still tells what of its request was taken before."""
        late = [future for future, request in self._running.items() if request.begun_at + longest_s <= self._now()]
        self._target.close()
        wait(late, timeout=_TELL_S)
        for future in late:
            request = self._running.pop(future)
            if future.done():
                self._take(request, future)
            else:
                self._failed(request, TryAgainError(f"no answer within {longest_s:.0f} s"))

    def _take(self, request: _Request, future: Future[BulkResponse]) -> None:
        try:
            answer = future.result()
        except TryAgainError as error:
            self._failed(request, error)
        except RefusedWholeError as error:
            self._refused_whole(request, str(error))
        except GiveUpError as error:
            self.sent.error = self.sent.error or str(error)
        else:
            self._answered(request, answer)

    def _answered(self, request: _Request, answer: BulkResponse) -> None:
        for index, item in enumerate(request.items):
            if index in answer.refused:
                self._refuse(item, answer.refused[index])
            elif index not in answer.again:
                self.sent.taken.setdefault(item.place, []).append(item.offset)
                self.sent.count += 1
        self.sent.repeats += answer.repeats
        if not answer.again:
            self._concurrency.succeeded()
            return
        reason = next(iter(answer.again.values()))
        left = _Request(0.0, request.number, [request.items[index] for index in sorted(answer.again)], request.tries)
        # Items that were taken are progress: the time for trying again starts over.
        left.failed_at = request.failed_at if len(answer.again) == len(request.items) else None
        left.begun_at = request.begun_at
        self._failed(left, TryAgainError(reason, pause_s=answer.pause_s, is_overload=answer.is_overload))

    def _refused_whole(self, request: _Request, reason: str) -> None:
        if len(request.items) > 1:
            for part in halves(request.items):
                heapq.heappush(self._delayed, self._new(part))
            return
        self._refused_alone += 1
        if self._refused_alone > _REFUSED_ALL and not self.sent.taken:
            self.sent.error = f"every event is refused, the last with: {reason}"
        else:
            self._refuse(request.items[0], reason)

    def _failed(self, request: _Request, error: TryAgainError) -> None:
        now = self._now()
        if error.is_overload:
            self._concurrency.slowed(request.begun_at, now, error.pause_s)
        request.failed_at = now if request.failed_at is None else request.failed_at
        wait_s = pause_s(request.tries, error.pause_s, self._chance)
        if now + wait_s > request.failed_at + self._settings.retry_for_s:
            tries = "once" if request.tries == 0 else f"{request.tries + 1} times"
            self.sent.error = self.sent.error or f"{error} (tried {tries})"
            return
        request.tries += 1
        request.due = now + wait_s
        heapq.heappush(self._delayed, request)
