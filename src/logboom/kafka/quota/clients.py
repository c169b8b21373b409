"""Who has used how much of which quota: one set of meters for each client id, and one for each address.

All connections of a client id share its meters. What nobody uses is forgotten, so that made-up names cannot fill the
memory. Knows clients by name and the broker's quotas; not sockets, nor what a request says.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Set
from functools import partial
from typing import Any, Final

from logboom.broker.broker import Broker
from logboom.kafka.config import KafkaConfig
from logboom.kafka.connection.inflight import Slot
from logboom.kafka.handlers.handler import Reply, RequestContext
from logboom.kafka.quota.meter import THROTTLE_MS_MAX, Meter
from logboom.metadata import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    quota_for,
)

_PRODUCE: Final = 0
_NS_PER_PERCENT_SECOND: Final = 10_000_000
_REMEMBERED_MAX: Final = 20_000
"""Client ids, and addresses, with meters; with more than this those that nobody uses go at once."""


class ClientMeters:
    """What one client id used. A meter is there only where there is a quota."""

    __slots__ = ("_desk", "_fetch", "_produce", "_request")

    def __init__(self, desk: "QuotaDesk") -> None:
        self._desk = desk
        self._produce: Meter | None = None
        self._fetch: Meter | None = None
        self._request: Meter | None = None

    def bound(self, client_id: str) -> bool:
        """Take the quotas as they are now; False where there is none. What was used before still counts."""
        desk = self._desk
        self._produce = desk.meter(self._produce, CLIENT_ID, client_id, PRODUCER_BYTE_RATE)
        self._fetch = desk.meter(self._fetch, CLIENT_ID, client_id, CONSUMER_BYTE_RATE)
        # As in Kafka, one who takes too much of the thread waits for one sample of the window at most.
        self._request = desk.meter(self._request, CLIENT_ID, client_id, REQUEST_PERCENTAGE, desk.sample_ms)
        return self._produce is not None or self._fetch is not None or self._request is not None

    def settled(self, now_ms: int) -> bool:
        """Whether nothing is left to pay off."""
        return all(meter is None or not meter.used(now_ms) for meter in (self._produce, self._fetch, self._request))

    def handle(self, slot: Slot, context: RequestContext, request: Any, wait: Callable[[int], None]) -> Reply:
        """Handle a request and charge for it; `wait` is told for how long, in milliseconds, where that is not 0."""
        reply = slot.route.handler.handle(context, request)
        slot.charged_ns = self._desk.now_ns()
        if hasattr(reply, "__await__"):
            return _Measured(reply, partial(self._settle, slot, wait), self._desk.now_ns)
        self._settle(slot, wait, slot.charged_ns - slot.started_ns)
        return reply

    def _settle(self, slot: Slot, wait: Callable[[int], None], spent_ns: int) -> None:
        slot.throttle_ms = self._charge_request(slot, spent_ns)
        if slot.throttle_ms:
            wait(slot.throttle_ms)

    def _charge_request(self, slot: Slot, spent_ns: int) -> int:
        now_ms = self._desk.now_ms()
        wait_ms = 0
        if self._request is not None:
            wait_ms = self._request.charge(spent_ns / _NS_PER_PERCENT_SECOND, now_ms)
            self._desk.count(REQUEST_PERCENTAGE, wait_ms)
        if slot.route.handler.api_key == _PRODUCE and self._produce is not None:
            too_much_ms = self._produce.charge(slot.size_bytes, now_ms)
            self._desk.count(PRODUCER_BYTE_RATE, too_much_ms)
            wait_ms = max(wait_ms, too_much_ms)
        return wait_ms

    def charge_rest(self, slot: Slot) -> None:
        """What was done for the request after its wait was settled: it counts for the next."""
        if self._request is not None:
            spent_ns = self._desk.now_ns() - slot.charged_ns
            self._request.charge(spent_ns / _NS_PER_PERCENT_SECOND, self._desk.now_ms())

    def charge_fetch(self, size_bytes: int) -> int:
        """Records are about to be sent: how long the client has to wait first; then none may be sent."""
        if self._fetch is None or not size_bytes:
            return 0
        now_ms = self._desk.now_ms()
        wait_ms = self._fetch.charge_unless_above(size_bytes, now_ms)
        self._desk.count(CONSUMER_BYTE_RATE, wait_ms)
        return wait_ms

    def fetch_bytes_max(self, wanted: int) -> int:
        """As much of `wanted` as one reply may hold: more than a window allows could never be sent."""
        return wanted if self._fetch is None else min(wanted, int(self._fetch.window_amount))


class _Measured:
    """A handler that works in several steps, and the time of these alone; it is settled before the reply is there."""

    def __init__(self, work: Awaitable[Reply], settle: Callable[[int], None], now_ns: Callable[[], int]) -> None:
        self._work = work
        self._now_ns = now_ns
        self._settle = settle

    def __await__(self) -> Generator[Any, Any, Reply]:
        steps: Any = self._work.__await__()
        spent_ns = 0
        error: BaseException | None = None
        while True:
            started_ns = self._now_ns()
            try:
                step = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as done:
                self._settle(spent_ns + self._now_ns() - started_ns)
                return done.value
            spent_ns += self._now_ns() - started_ns
            error = None
            try:
                yield step
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001  # it is the handler's to see, as if nothing stood between
                error = thrown


class QuotaDesk:
    """Every quota of one door. Life: that of the door; `tick`ed once a second."""

    def __init__(self, broker: Broker, config: KafkaConfig, connected: Callable[[], Set[str]]) -> None:
        """`connected` names the client ids that are there."""
        self._broker = broker
        self._connected = connected
        self._clock = broker.clock
        self.now_ns = broker.clock.monotonic_ns
        self.sample_ms = round(config.quota_window_size_s * 1_000)
        self._window_ms = (config.quota_window_num - 1) * self.sample_ms
        self._clients: dict[str, ClientMeters] = {}
        self._addresses: dict[str, Meter] = {}
        self._forget_at_ms = 0
        self.for_clients = False
        """Whether any client id has a quota."""
        self.for_addresses = False
        self.throttled: Counter[str] = Counter()
        """Requests, or connections, that had to wait, by quota."""
        self.throttled_ms: Counter[str] = Counter()
        """How long, in all."""
        self.changed()

    @property
    def clients(self) -> Collection[str]:
        """The client ids that have meters."""
        return self._clients.keys()

    def now_ms(self) -> int:
        """The desk's own time."""
        return int(self._clock.monotonic_s() * 1_000)

    def changed(self) -> None:
        """Take the broker's quotas as they are now. Meters that somebody holds may have to be asked for again."""
        types = {entity[0][0] for entity in self._broker.catalog.quotas}
        self.for_clients, self.for_addresses = CLIENT_ID in types, IP in types
        self._clients = {name: meters for name, meters in self._clients.items() if meters.bound(name)}
        self._addresses = {
            address: kept
            for address, meter in self._addresses.items()
            if (kept := self._address_meter(meter, address)) is not None
        }

    def of(self, client_id: str) -> ClientMeters | None:
        """The meters of a client id; None where nothing bounds it."""
        if not self.for_clients:
            return None
        meters = self._clients.get(client_id)
        if meters is None:
            meters = ClientMeters(self)
            if not meters.bound(client_id):
                return None
            if len(self._clients) >= _REMEMBERED_MAX:
                self._forget_clients(even_unsettled=True)
            self._clients[client_id] = meters
        return meters

    def charge_connection(self, address: str) -> int:
        """Somebody connects from there: how long they have to wait, in which case it does not count."""
        if not self.for_addresses:
            return 0
        meter = self._addresses.get(address)
        if meter is None:
            meter = self._address_meter(None, address)
            if meter is None:
                return 0
            if len(self._addresses) >= _REMEMBERED_MAX:
                self._forget_addresses()
            self._addresses[address] = meter
        wait_ms = meter.charge_unless_above(1, self.now_ms())
        self.count(CONNECTION_CREATION_RATE, wait_ms)
        return wait_ms

    def meter(
        self, old: Meter | None, entity_type: str, name: str, quota: str, most_ms: int = THROTTLE_MS_MAX
    ) -> Meter | None:
        """The meter for a quota as it is now, made out of the one before; None where there is no quota."""
        bound = quota_for(self._broker.catalog.quotas, entity_type, name, quota)
        if bound is None:
            return None
        if old is None:
            return Meter(bound, self._window_ms, most_ms)
        old.bound = bound
        return old

    def _address_meter(self, old: Meter | None, address: str) -> Meter | None:
        return self.meter(old, IP, address, CONNECTION_CREATION_RATE, self.sample_ms)

    def count(self, quota: str, wait_ms: int) -> None:
        """Somebody has to wait, or not."""
        if wait_ms:
            self.throttled[quota] += 1
            self.throttled_ms[quota] += wait_ms

    def tick(self) -> None:
        """Let go, now and then, of those that are not connected and have nothing to pay off."""
        now_ms = self.now_ms()
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + self._window_ms
            self._forget_clients(even_unsettled=False)
            self._forget_addresses()

    def _forget_clients(self, *, even_unsettled: bool) -> None:
        if self._clients:
            now_ms, connected = self.now_ms(), self._connected()
            self._clients = {
                name: meters
                for name, meters in self._clients.items()
                if name in connected or not (even_unsettled or meters.settled(now_ms))
            }

    def _forget_addresses(self) -> None:
        now_ms = self.now_ms()
        self._addresses = {address: meter for address, meter in self._addresses.items() if meter.used(now_ms) > 0}
