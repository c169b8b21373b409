"""Which signals ask for a stop, and which end the process at once."""

import asyncio
from signal import SIGINT, SIGTERM, Signals

import pytest

from logboom.app.stop_signals import SAME_REQUEST_S, StopSignals


async def after(*signals: tuple[Signals, float], requested: bool = False) -> list[str]:
    """What is done about signals that arrive at these times, in seconds."""
    done: list[str] = []
    stop_requested, loop = asyncio.Event(), asyncio.get_running_loop()
    if requested:
        stop_requested.set()
    taken = StopSignals(
        (),
        stop_requested,
        on_request=lambda number: done.append(f"stop {number.name}"),
        end_at_once=lambda number: done.append(f"end {number.name}"),
    )
    with pytest.MonkeyPatch.context() as patch:
        for number, at_s in signals:
            patch.setattr(loop, "time", lambda at_s=at_s: at_s)
            taken.take(number)
    assert stop_requested.is_set()
    return done


def test_a_signal_that_is_sent_twice_at_once_is_one_request() -> None:
    """As `timeout 60 logboom serve` sends it."""
    assert asyncio.run(after((SIGTERM, 7.0), (SIGTERM, 7.0 + SAME_REQUEST_S * 0.9))) == ["stop SIGTERM"]


def test_a_second_request_ends_it_at_once() -> None:
    later = 7.0 + SAME_REQUEST_S
    assert asyncio.run(after((SIGTERM, 7.0), (SIGTERM, later))) == ["stop SIGTERM", "end SIGTERM"]
    assert asyncio.run(after((SIGTERM, 7.0), (SIGINT, 7.0))) == ["stop SIGTERM", "end SIGINT"]


def test_a_signal_after_another_request_to_stop_ends_it_at_once() -> None:
    assert asyncio.run(after((SIGINT, 7.0), (SIGINT, 7.1), requested=True)) == ["end SIGINT"]
