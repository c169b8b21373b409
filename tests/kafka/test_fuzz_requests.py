"""Any request at any version, whole, strange or broken: answered or closed, in bounded time, without a fault of ours.

Runs for a moment here, and as long as one likes with `make fuzz SECONDS=600`. What was found is kept by name below
and in the other tests of bad input.
"""

import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kafka.attack import peak_bytes
from tests.kafka.fuzzing import Besieged, bodies, served

from logboom.base.units import MIB
from logboom.kafka.apis import load_handlers

SECONDS = float(os.environ.get("LOGBOOM_FUZZ_SECONDS", "0"))
EXAMPLES = 12
PEAK_BYTES_MAX = 600 * MIB
APIS = {
    handler.api_key: [version for key, version in served() if key == handler.api_key]
    for handler in load_handlers().values()
}


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    one = Besieged(tmp_path_factory.mktemp("fuzz"))
    one.start()
    yield one
    one.leave()
    assert peak_bytes(one.broker.pid) < PEAK_BYTES_MAX
    assert one.broker.sigterm() == 0
    assert "a request failed" not in one.broker.log_text()
    one.start()  # and what it wrote can be read again
    one.broker.stop()


def fuzzed(besieged: Besieged, api_keys: list[int], examples: int) -> None:
    """So many requests of each of these APIs."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def requests(data: st.DataObject) -> None:
        api_key = data.draw(st.sampled_from(api_keys))
        version = data.draw(st.sampled_from(APIS[api_key]))
        besieged.strike(api_key, version, data.draw(bodies(api_key, version)))

    requests()


@pytest.mark.parametrize("api_key", APIS, ids=lambda key: load_handlers()[key].handle.__module__.rpartition(".")[2])
def test_any_request_is_answered_or_closed(besieged: Besieged, api_key: int) -> None:
    """`Besieged.strike` asserts it of each request; the fixture's end, that the broker lived and logged no fault."""
    fuzzed(besieged, [api_key], EXAMPLES)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_any_requests_for_as_long_as_was_said(besieged: Besieged) -> None:
    """As above, of all APIs in turn, for LOGBOOM_FUZZ_SECONDS or a minute."""
    until_s = time.monotonic() + (SECONDS or 60.0)
    while time.monotonic() < until_s:
        fuzzed(besieged, list(APIS), 300)
    assert besieged.answered > 0
    print(f"answered {besieged.answered}, closed {besieged.closed}, left {besieged.left}")
