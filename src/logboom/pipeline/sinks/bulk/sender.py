"""Sends the requests of one task: several at once, with retries, and in halves if one is refused as a whole.

Knows targets and time. Must not know records, Spark or any particular server.

A request is retried for `retry_for_s` from its first failure, with the pauses of `backoff`. When this time is over, or
the target gives up, no new request begins. The task waits for those in progress and reports what was not sent. A
request that does not end is aborted after `request_max_s` by closing its connection.
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
"""How long a thread may take to report the result of a request whose connection was closed."""
_REFUSED_ALL: Final = 32
"""If this many events of a task are refused one by one and none is accepted, the cause is probably not in the
events."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for sending."""

    concurrency: int
    per_second: float | None
    retry_for_s: float
    request_max_s: float
    """Upper limit for one request, for servers that send their answer very slowly. The request's own timeouts are
    shorter."""


@dataclass(slots=True)
class Sent:
    """The results of a task's items."""

    taken: dict[str, list[int]] = field(default_factory=dict)
    """Offsets of delivered records, by place, including the `repeats` that the server had before."""
    count: int = 0
    """Number of offsets in `taken`."""
    repeats: int = 0
    error: str | None = None
    """Why the rest was not sent; None if everything was."""


@dataclass(slots=True, order=True)
class _Request:
    due: float
    number: int
    items: list[Item] = field(compare=False)
    tries: int = field(default=0, compare=False)
    failed_at: float | None = field(default=None, compare=False)
    begun_at: float = field(default=0.0, compare=False)


class Sender:
    """Sends the items of one task to a target. Used once."""

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
        """`refuse` is called for each item that the server refuses for good, with the reason."""
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
        """Run until every item is accepted or refused, or sending has failed."""
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
            if self._running:  # after an error or a hanging request: the threads end when their connections are closed
                self._target.close()
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, pool: ThreadPoolExecutor, source: Iterator[list[Item]]) -> bool:
        """Start as many requests as allowed; returns whether there may be more items."""
        while len(self._running) < self._concurrency.allowed and self._concurrency.opens_at() <= self._now():
            request = self._due()
            if request is None:
                if len(self._running) + len(self._delayed) >= self._settings.concurrency:
                    # waiting requests first: their number must stay small, and later ones should not overtake them by
                    # much
                    return True
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
        """The time from which another request may begin, as far as time limits it."""
        if len(self._running) >= self._concurrency.allowed or not (has_more or self._delayed):
            return math.inf
        is_full = len(self._running) + len(self._delayed) >= self._settings.concurrency
        waits = self._delayed and (is_full or not has_more)
        return max(self._delayed[0].due if waits else self._now(), self._concurrency.opens_at())

    def _await(self, next_at: float) -> None:
        """Wait until a request ends or another may begin; close the connections of requests that take too long."""
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
        """Even after its connection was closed, a thread reports which items its request had delivered."""
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
        # Accepted items are progress: the retry time starts again.
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
