"""Which client has used how much of its quotas: one set of meters per client id, one meter per address.

All connections of a client id share its meters. Meters that are paid off and belong to no open connection are
forgotten, so that invented client ids cannot fill the memory. Knows clients by name and the quotas that are set; no
sockets and no requests.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from typing import Final

from logboom.base.ports import Clock
from logboom.broker.quotas.meter import THROTTLE_MS_MAX, Meter
from logboom.metadata import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    Quotas,
    quota_for,
)

_NS_PER_PERCENT_SECOND: Final = 10_000_000
_REMEMBERED_MAX: Final = 20_000
"""Client ids, and addresses, with meters; above it the meters of those that are not connected go at once."""


class ClientQuotas:
    """The meters of one client id. A meter exists only where there is a quota."""

    __slots__ = ("_fetch", "_manager", "_produce", "_request")

    def __init__(self, manager: "ClientQuotaManager") -> None:
        self._manager = manager
        self._produce: Meter | None = None
        self._fetch: Meter | None = None
        self._request: Meter | None = None

    def update(self, client_id: str) -> bool:
        """Take the quotas that are in force; False where there is none. What was used before still counts."""
        manager = self._manager
        self._produce = manager.meter(self._produce, CLIENT_ID, client_id, PRODUCER_BYTE_RATE)
        self._fetch = manager.meter(self._fetch, CLIENT_ID, client_id, CONSUMER_BYTE_RATE)
        # As in Kafka, a client that uses too much request time waits for one sample of the window at most.
        self._request = manager.meter(self._request, CLIENT_ID, client_id, REQUEST_PERCENTAGE, manager.sample_ms)
        return self._produce is not None or self._fetch is not None or self._request is not None

    def is_paid_off(self, now_ms: int) -> bool:
        """Whether no meter has anything left to pay off."""
        return all(meter is None or not meter.used(now_ms) for meter in (self._produce, self._fetch, self._request))

    def charge_request(self, spent_ns: int, produced_bytes: int) -> int:
        """Charge a request: loop time in nanoseconds, and its size where it is a Produce, else 0. Returns the throttle
        time in milliseconds."""
        now_ms = self._manager.now_ms()
        throttle_ms = 0
        if self._request is not None:
            throttle_ms = self._request.charge(spent_ns / _NS_PER_PERCENT_SECOND, now_ms)
            self._manager.count(REQUEST_PERCENTAGE, throttle_ms)
        if produced_bytes and self._produce is not None:
            produce_throttle_ms = self._produce.charge(produced_bytes, now_ms)
            self._manager.count(PRODUCER_BYTE_RATE, produce_throttle_ms)
            throttle_ms = max(throttle_ms, produce_throttle_ms)
        return throttle_ms

    def charge_published(self, size_bytes: int) -> int:
        """Charge messages of a publisher that cannot be made to wait. Returns the milliseconds until they can be taken;
        if that is not 0, nothing was charged and they are to be refused."""
        if self._produce is None:
            return 0
        throttle_ms = self._produce.charge_unless_above(size_bytes, self._manager.now_ms())
        self._manager.count(PRODUCER_BYTE_RATE, throttle_ms)
        return throttle_ms

    def charge_time(self, spent_ns: int) -> None:
        """Charge loop time after the throttle time was computed: it counts towards the next request's."""
        if self._request is not None:
            self._request.charge(spent_ns / _NS_PER_PERCENT_SECOND, self._manager.now_ms())

    def charge_fetch(self, size_bytes: int) -> int:
        """Charge records that are about to be sent. Returns the throttle time in milliseconds; if that is not 0,
        nothing was charged and no records may be sent."""
        if self._fetch is None or not size_bytes:
            return 0
        now_ms = self._manager.now_ms()
        throttle_ms = self._fetch.charge_unless_above(size_bytes, now_ms)
        self._manager.count(CONSUMER_BYTE_RATE, throttle_ms)
        return throttle_ms

    def fetch_bytes_max(self, wanted_bytes: int) -> int:
        """`wanted_bytes`, or what a whole window allows where that is less: a larger response could never be sent."""
        return wanted_bytes if self._fetch is None else min(wanted_bytes, int(self._fetch.window_amount))


class ClientQuotaManager:
    """The quotas of one broker, whichever front end a client uses. Every front end calls `tick` once a second."""

    def __init__(
        self,
        quotas: Callable[[], Mapping[QuotaEntity, Quotas]],
        clock: Clock,
        *,
        sample_ms: int,
        sample_count: int,
    ) -> None:
        """`quotas` returns those that are set now.

        Usage is measured over a window of `sample_count` - 1 samples of `sample_ms` milliseconds, as in Kafka.
        """
        self._quotas = quotas
        self._doors: list[Callable[[], Set[str]]] = []
        self._clock = clock
        self.sample_ms = sample_ms
        self._window_ms = (sample_count - 1) * sample_ms
        self._clients: dict[str, ClientQuotas] = {}
        self._addresses: dict[str, Meter] = {}
        self._cleanup_at_ms = 0
        self.for_clients = False
        """Whether any client id has a quota."""
        self.for_addresses = False
        """Whether any address has a quota."""
        self.throttled: Counter[str] = Counter()
        """Throttled requests, or connections, by quota."""
        self.throttled_ms: Counter[str] = Counter()
        """Sum of their throttle times, by quota."""
        self.update()

    @property
    def clients(self) -> Collection[str]:
        """The client ids that have meters."""
        return self._clients.keys()

    def add_door(self, client_ids: Callable[[], Set[str]]) -> None:
        """Keep the meters of clients that are connected to this front end; `client_ids` returns their ids."""
        self._doors.append(client_ids)

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return int(self._clock.monotonic_s() * 1_000)

    def update(self) -> None:
        """Take the quotas that are set now. ClientQuotas that were handed out must be asked for again."""
        types = {entity[0][0] for entity in self._quotas()}
        self.for_clients, self.for_addresses = CLIENT_ID in types, IP in types
        self._clients = {name: quotas for name, quotas in self._clients.items() if quotas.update(name)}
        self._addresses = {
            address: updated
            for address, meter in self._addresses.items()
            if (updated := self._address_meter(meter, address)) is not None
        }

    def of(self, client_id: str) -> ClientQuotas | None:
        """The meters of a client id; None where it has no quota."""
        if not self.for_clients:
            return None
        quotas = self._clients.get(client_id)
        if quotas is None:
            quotas = ClientQuotas(self)
            if not quotas.update(client_id):
                return None
            if len(self._clients) >= _REMEMBERED_MAX:
                self._forget_clients(even_unpaid=True)
            self._clients[client_id] = quotas
        return quotas

    def charge_connection(self, address: str) -> int:
        """Charge a new connection. Returns the throttle time in milliseconds; if that is not 0, nothing was charged."""
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
        throttle_ms = meter.charge_unless_above(1, self.now_ms())
        self.count(CONNECTION_CREATION_RATE, throttle_ms)
        return throttle_ms

    def meter(
        self, old: Meter | None, entity_type: str, name: str, quota: str, throttle_ms_max: int = THROTTLE_MS_MAX
    ) -> Meter | None:
        """The meter for a quota that is in force, with what `old` has counted; None where there is no quota."""
        bound = quota_for(self._quotas(), entity_type, name, quota)
        if bound is None:
            return None
        if old is None:
            return Meter(bound, self._window_ms, throttle_ms_max)
        old.bound = bound
        return old

    def _address_meter(self, old: Meter | None, address: str) -> Meter | None:
        return self.meter(old, IP, address, CONNECTION_CREATION_RATE, self.sample_ms)

    def count(self, quota: str, throttle_ms: int) -> None:
        """Count a throttle time; 0 is none."""
        if throttle_ms:
            self.throttled[quota] += 1
            self.throttled_ms[quota] += throttle_ms

    def tick(self) -> None:
        """Forget, once a window, meters that are paid off and not in use."""
        now_ms = self.now_ms()
        if now_ms >= self._cleanup_at_ms:
            self._cleanup_at_ms = now_ms + self._window_ms
            self._forget_clients(even_unpaid=False)
            self._forget_addresses()

    def _forget_clients(self, *, even_unpaid: bool) -> None:
        if self._clients:
            now_ms = self.now_ms()
            connected = {client_id for client_ids in self._doors for client_id in client_ids()}
            self._clients = {
                name: quotas
                for name, quotas in self._clients.items()
                if name in connected or not (even_unpaid or quotas.is_paid_off(now_ms))
            }

    def _forget_addresses(self) -> None:
        now_ms = self.now_ms()
        self._addresses = {address: meter for address, meter in self._addresses.items() if meter.used(now_ms) > 0}
