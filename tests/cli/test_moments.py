"""Spans of time and moments as people type them after a command."""

import time

import pytest

from logboom.cli.common import CommandError
from logboom.cli.moments import SPAN_MS_MAX, ago_ms, span_ms


def test_a_span_that_no_calendar_takes_is_refused() -> None:
    assert span_ms("--for", "36500d") == SPAN_MS_MAX
    with pytest.raises(CommandError, match="--for 99999999d: should be at most 36500d"):
        span_ms("--for", "99999999d")


def test_a_time_ago_is_no_earlier_than_1970() -> None:
    assert ago_ms("36500d") == 0
    assert abs(ago_ms("1h") - (time.time() - 3_600) * 1_000) < 60_000
