"""The arithmetic of quotas and the meters of clients, under a clock of the tests' own."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.broker.quotas.clients import ClientQuotaManager
from logboom.broker.quotas.meter import THROTTLE_MS_MAX, Meter
from logboom.metadata import CLIENT_ID, CONSUMER_BYTE_RATE

WINDOW_MS = 10_000


def test_as_much_as_a_window_holds_may_come_at_once() -> None:
    meter = Meter(100, WINDOW_MS)
    assert meter.charge(1_000, 0) == 0
    assert meter.charge(1_000, 0) == 10_000, "2,000 in ten seconds are twice too much: ten more"
    assert meter.charge(0, 10_000) == 0, "whoever waited goes on"
    assert meter.charge(100, 10_000) == 1_000, "and has nothing left over"
    assert meter.charge(1_000, 10**6) == 0, "a long silence pays off everything"


def test_throttle_times_are_bounded() -> None:
    assert Meter(1, WINDOW_MS).charge(1e15, 0) == THROTTLE_MS_MAX
    assert Meter(1, WINDOW_MS, throttle_ms_max=1_000).charge(1e15, 0) == 1_000


def test_what_was_not_sent_is_not_counted() -> None:
    meter = Meter(100, WINDOW_MS)
    assert meter.charge_unless_above(900, 0) == 0
    assert meter.charge_unless_above(200, 0) == 1_000
    assert meter.charge_unless_above(100, 0) == 0, "there was room for 100 all the time"


def test_a_reply_that_no_window_holds_comes_when_nothing_is_owed() -> None:
    meter = Meter(100, WINDOW_MS)
    meter.charge(100, 0)
    assert meter.charge_unless_above(5_000, 0) == 1_000
    assert meter.charge_unless_above(5_000, 1_000) == 0
    assert meter.charge_unless_above(1, 1_000) == 40_010, "it is paid off behind"


def test_a_new_bound_holds_for_what_is_not_paid_off_too() -> None:
    meter = Meter(100, WINDOW_MS)
    meter.charge(1_000, 0)
    meter.bound = 50
    assert meter.charge(0, 0) == 10_000
    meter.bound = 1_000
    assert meter.charge(0, 0) == 0


@given(
    st.integers(1, 50_000),
    st.lists(st.tuples(st.integers(1, 1_000_000), st.integers(0, 30_000)), min_size=1, max_size=120),
)
@settings(max_examples=200)
def test_a_client_that_waits_its_throttle_time_gets_its_rate(bound: int, requests: list[tuple[int, int]]) -> None:
    """However requests and pauses fall, when a wait is over no more has come than the rate and one window allow."""
    meter, now_ms, sent = Meter(bound, WINDOW_MS), 0, 0
    for size, pause_ms in requests:
        sent += size
        now_ms += meter.charge(size, now_ms)
        assert sent <= bound * (now_ms + WINDOW_MS) / 1_000 * (1 + 1e-9)
        now_ms += pause_ms


@given(
    st.integers(1, 50_000),
    st.lists(st.tuples(st.integers(1, 1_000_000), st.integers(0, 30_000)), min_size=1, max_size=120),
)
@settings(max_examples=200)
def test_throttle_times_never_exceed_what_the_rate_requires(bound: int, requests: list[tuple[int, int]]) -> None:
    """A millisecond before the wait is over it would not be over."""
    meter, now_ms = Meter(bound, WINDOW_MS), 0
    for size, pause_ms in requests:
        wait_ms = meter.charge(size, now_ms)
        if wait_ms > 1:
            assert meter.charge(0, now_ms + wait_ms - 2) > 0
        now_ms += wait_ms
        assert meter.charge(0, now_ms) <= 1, "but for a millisecond of rounding"
        now_ms += pause_ms


@given(st.integers(1_000, 50_000), st.lists(st.integers(1, 10_000), min_size=1, max_size=200))
@settings(max_examples=200)
def test_replies_that_wait_never_pass_the_rate_and_always_come(bound: int, sizes: list[int]) -> None:
    """As fetches do it: what would be too much is not sent but asked for again after the wait."""
    meter, now_ms, sent = Meter(bound, WINDOW_MS), 0, 0
    for size in sizes:
        for _ in range(3):
            wait_ms = meter.charge_unless_above(size, now_ms)
            if not wait_ms:
                break
            now_ms += wait_ms
        else:
            raise AssertionError("a reply that fits into a window never came")
        sent += size
        assert sent <= bound * (now_ms + WINDOW_MS) / 1_000 * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3_000)), min_size=1, max_size=100))
@settings(max_examples=100)
def test_a_client_below_its_rate_is_never_throttled(steps: list[tuple[int, int]]) -> None:
    """The rate may even be passed by as much as a window holds."""
    meter, now_ms, used = Meter(500, WINDOW_MS), 0, 0.0
    for amount, pause_ms in steps:
        used = max(0.0, used - 500 * pause_ms / 1_000) + amount
        now_ms += pause_ms
        assert (meter.charge(amount, now_ms) > 0) == (used > 5_000 + 1e-6)


class ManualClock:
    """Time as the test sets it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)

    def wall_ms(self) -> int:
        return int(self.now_s * 1e3)


def test_two_doors_charge_one_meter_and_keep_it_while_either_has_the_client() -> None:
    clock = ManualClock()
    entity = ((CLIENT_ID, "billing"),)
    manager = ClientQuotaManager(lambda: {entity: {CONSUMER_BYTE_RATE: 100.0}}, clock, sample_ms=1_000, sample_count=11)
    connected: list[set[str]] = [{"billing"}, set()]
    manager.add_door(lambda: connected[0])
    manager.add_door(lambda: connected[1])
    first, second = manager.of("billing"), manager.of("billing")
    assert first is not None
    assert second is not None
    assert first.charge_fetch(1_000) == 0, "through one door"
    assert second.charge_fetch(1_000) > 0, "through the other: the window is used up"
    for door in (0, 1):
        connected[:] = [{"billing"} if at == door else set() for at in (0, 1)]
        clock.now_s += 1_000.0  # everything is paid off
        manager.tick()
        assert list(manager.clients) == ["billing"]
    connected[:] = [set(), set()]
    clock.now_s += 1_000.0
    manager.tick()
    assert not manager.clients
