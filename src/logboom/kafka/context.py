"""What all connections of one door have in common."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from logboom.base.ports import Clock, Ids
from logboom.kafka.admin.metadata_cache import MetadataCache
from logboom.kafka.config import KafkaConfig
from logboom.kafka.connection.admission import Admission
from logboom.kafka.connection.frames import SCRATCH_BYTES
from logboom.kafka.fetch.purgatory import FetchPurgatory
from logboom.kafka.fetch.sessions import FetchSessions
from logboom.kafka.handlers.route import Routes, load_handlers
from logboom.kafka.handlers.template_cache import Usuals
from logboom.kafka.metrics import KafkaMetrics
from logboom.kafka.quota.clients import QuotaDesk

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.kafka.connection.connection import Connection

_COMPLAINT_INTERVAL_S = 10.0
_COMPLAINT_KINDS_MAX = 256


class Complaints:
    """Log lines that strangers cause: one of a kind every ten seconds, the others counted in the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = structlog.get_logger("logboom.kafka")
        self._next_s: dict[str, float] = {}
        self._silenced: dict[str, int] = {}

    def say(self, kind: str, event: str, **fields: object) -> None:
        """Log a warning, unless one of this kind was just logged."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s.get(kind, 0.0):
            self._silenced[kind] = self._silenced.get(kind, 0) + 1
            return
        if len(self._next_s) >= _COMPLAINT_KINDS_MAX:
            self._next_s.clear()
            self._silenced.clear()
        self._next_s[kind] = now_s + _COMPLAINT_INTERVAL_S
        silenced = self._silenced.pop(kind, 0)
        self._log.warning(event, **fields, **({"more_like_this": silenced} if silenced else {}))


def _draw_session_id(ids: Ids) -> int:
    return ids.below(2**31 - 1) + 1


class Shared:
    """One door's broker, settings, counters and the requests that wait. Life: that of the door."""

    def __init__(self, broker: Broker, config: KafkaConfig) -> None:
        self.broker = broker
        self.clock = broker.clock
        self._config = broker.dynamic_settings.add("kafka", config)
        config = self._config.now
        self.metrics = KafkaMetrics()
        self.routes = Routes(load_handlers(), self.metrics)
        self.purgatory = FetchPurgatory(self._config, self.metrics, self.crossed)
        self.fetch_sessions = FetchSessions(
            config.max_fetch_sessions,
            config.max_fetch_session_partitions,
            partial(_draw_session_id, broker.runtime.ids),
            self.metrics.fetch_sessions,
        )
        self.metadata_cache = MetadataCache(broker)
        self.complaints = Complaints(broker.clock)
        self.usuals = Usuals()
        self.connections: dict[Connection, None] = {}
        """In the order in which they came; as a set, where order would hang on addresses in memory, no run could be
        repeated. `starved` alike."""
        self.quotas = QuotaDesk(broker, config, self._client_ids)
        broker.catalog.watch_quotas(self._quotas_changed)
        self.admission = Admission(self)
        self.starved: dict[Connection, None] = {}
        """Connections that do not read since the door has max_inflight_total_bytes in hand, or that have a request
        which waits for room in what waits for the disk."""
        self.reply_reserved_bytes = 0
        """Room for replies that are being read from the disk."""
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.advertised = ("", 0)
        self.stopping = False
        """No request is begun any more; connections close when their replies have left."""
        self.all_gone = asyncio.Event()
        self.staging = broker.flusher
        self.staging.on_capacity(self.feed_starved)
        self._config.subscribe(self.configure)

    @property
    def config(self) -> KafkaConfig:
        """The door's settings in force now."""
        return self._config.now

    def configure(self, config: KafkaConfig) -> None:
        """Let every connection take settings that changed."""
        for connection in tuple(self.connections):
            connection.configure(config)
        self.fetch_sessions.sessions_max = config.max_fetch_sessions
        self.fetch_sessions.partitions_max = config.max_fetch_session_partitions
        self.feed_starved()

    def _client_ids(self) -> set[str]:
        return {connection.client_id for connection in self.connections}

    def _quotas_changed(self) -> None:
        self.quotas.changed()
        for connection in self.connections:
            connection.quotas_changed()

    def crossed(self, limit: str, why: str, **fields: object) -> None:
        """A limit was reached: count it and say so."""
        self.metrics.crossed[limit] += 1
        self.complaints.say(f"limit {limit}", "limit reached", limit=limit, why=why, **fields)

    def note_pause(self, held: tuple[int, int], *, backpressured: bool, writable: bool) -> None:
        """A connection with so much in hand is not read any more: count the limit that is the reason."""
        requests, size_bytes = held
        config, counts = self.config, self.metrics.crossed
        if backpressured:
            why = f"{self.staging.staged_bytes} bytes wait for the disk: produce requests wait too"
            self.crossed("broker.max_staged_bytes", why)
        elif not writable:
            counts["kafka.max_unsent_bytes"] += 1  # a slow reader is nothing to tell of
        elif self.has_all_requests:
            why = f"{self.metrics.inflight_requests} requests are under way: no more are read"
            self.crossed("kafka.max_inflight_total_requests", why)
        elif self.is_full:
            why = f"requests take {self.metrics.inflight_bytes} bytes: no more are read"
            self.crossed("kafka.max_inflight_total_bytes", why)
        elif requests >= config.max_inflight_requests:
            counts["kafka.max_inflight_requests"] += 1
        elif size_bytes >= config.max_inflight_bytes:
            counts["kafka.max_inflight_bytes"] += 1

    @property
    def reply_room_bytes(self) -> int:
        """What fetches may still put into replies before slow peers have read theirs."""
        taken_bytes = self.metrics.unsent_bytes + self.reply_reserved_bytes
        return max(0, self.config.max_unsent_total_bytes - taken_bytes)

    def reply_room(self, wanted_bytes: int) -> int:
        """How much of what a fetch wants its reply may hold."""
        room_bytes = self.reply_room_bytes
        if room_bytes < wanted_bytes:
            why = f"{self.metrics.unsent_bytes} bytes wait for peers to read them: fetches get less than they ask for"
            self.crossed("kafka.max_unsent_total_bytes", why)
        return min(wanted_bytes, room_bytes)

    def reserve_reply(self, wanted_bytes: int) -> int:
        """Take room for a reply that will be read from the disk; what there is of it. Given back when it is read."""
        reserved_bytes = self.reply_room(wanted_bytes)
        self.reply_reserved_bytes += reserved_bytes
        return reserved_bytes

    @property
    def has_all_requests(self) -> bool:
        """Whether as many requests are under way as may be."""
        return self.metrics.inflight_requests >= self.config.max_inflight_total_requests

    @property
    def is_full(self) -> bool:
        """Whether no more requests are read for now."""
        metrics = self.metrics
        if self.has_all_requests:
            return True
        held_bytes = metrics.inflight_bytes + metrics.arriving_bytes + metrics.waiting_bytes
        return held_bytes >= self.config.max_inflight_total_bytes

    def note_departure(self) -> None:
        """A connection was lost."""
        if self.stopping and not self.connections:
            self.all_gone.set()

    def feed_starved(self) -> None:
        """Let those read again that waited for room."""
        if self.starved and not self.is_full:
            for connection in tuple(self.starved):
                connection.schedule_turn()
