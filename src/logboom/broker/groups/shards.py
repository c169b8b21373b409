"""The shards of this broker: one for each partition of `__consumer_offsets` that it leads, for one leadership each.

`follow` compares the image with the existing shards, so it may be called at any time and with any number of changes at
once. A new leadership gets a new shard, which loads in the background; when a leadership is lost, or replaced by a
later one of the same broker, its shard resigns and its state is forgotten. Nothing but the log is handed over from one
shard to the next.

A leader acts only under a lease. While it has none another broker may lead, and know later offsets: nothing is answered
from memory then. Its shards keep their state for _LEASE_GRACE_S, because perhaps only the controller has changed; after
that, members that still wait for an answer are told to look elsewhere.

A broker may have its lease and yet apply no change, for example because its disk has no space for the log of the
metadata. Perhaps another broker was made the leader on purpose. After _BEHIND_MAX_S nothing is answered either: the
next leader commits nothing without this one before this one has left the ISR, which takes longer
(`broker.replica_lag_max_ms`), unless this one has asked to leave.
"""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError
from logboom.base.ids import NO_EPOCH, Epoch
from logboom.broker.config import BrokerConfig, GroupsConfig
from logboom.broker.groups.offsets_stream import OFFSETS_STREAM, leaderships
from logboom.broker.groups.shard import STALL_GRACE_S, GroupShard
from logboom.broker.internal_streams import InternalStreams
from logboom.broker.runtime import Runtime
from logboom.groups import Resumed, partition_of_group
from logboom.groups.errors import CoordinatorNotAvailableError, NotCoordinatorError
from logboom.metadata import Stream

_LEASE_GRACE_S: Final = 5.0
_BEHIND_MAX_S: Final = 5.0
"""Brokers are behind for some milliseconds all the time, and some clients take a refusal of OffsetFetch badly."""


class _Led(NamedTuple):
    """One leadership of this broker."""

    epoch: Epoch
    shard: GroupShard
    loading: asyncio.Task[None]


class CoordinatorStanding(Protocol):
    """What this broker knows at this moment of its right to coordinate groups. `control.registration.Registration`."""

    @property
    def holds_lease(self) -> bool:
        """Whether it may act as a leader."""

    @property
    def behind_s(self) -> float:
        """For how long it has not applied metadata that it knows to be committed."""


class Shards:
    """See the module. Life: `follow` any number of times, then `resign` for good, then `drain`. On the loop."""

    def __init__(
        self,
        config: Current[BrokerConfig],
        streams: InternalStreams,
        standing: CoordinatorStanding,
        *,
        runtime: Runtime,
        log: FilteringBoundLogger,
    ) -> None:
        self._config = config
        self._streams = streams
        self._standing = standing
        self._runtime = runtime
        self._log = log
        self._stream: Stream | None = None
        self._leaderships: Mapping[int, Epoch] = {}
        """What this broker leads, by the image and in its partitions. It has shards for that while it has a lease."""
        self._led: dict[int, _Led] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        """Shards that have resigned and wait for their last writes."""
        self._has_ended = False
        self._lease_timer: asyncio.TimerHandle | None = None
        self._stall_logged_until_s = 0.0

    # --- leaderships --------------------------------------------------------------------------------------------

    def let_go(self, stream: Stream | None) -> None:
        """Resign what this broker does not lead any more, under the same epoch, as `stream` says."""
        led = leaderships(stream, self._streams.broker_id)
        self._leaderships = {index: epoch for index, epoch in self._leaderships.items() if led.get(index) == epoch}
        for index in [index for index, one in self._led.items() if led.get(index) != one.epoch]:
            self._resign(index)

    def follow(self, stream: Stream | None) -> None:
        """Coordinate what this broker leads as `stream` says; its partitions have taken these roles."""
        if self._has_ended:
            return
        self.let_go(stream)
        self._stream = stream
        led = leaderships(stream, self._streams.broker_id)
        self._leaderships = {index: epoch for index, epoch in led.items() if self._has_role(index, epoch)}
        self._load_missing()

    def _has_role(self, index: int, epoch: Epoch) -> bool:
        """Whether the partition leads, too. It does not where its copy is lost, and where the image speaks of an
        earlier process of this broker. One that cannot be opened gets a shard, which says why it does not serve."""
        try:
            role = self._streams.find_partition(OFFSETS_STREAM, index).role
        except LogboomError:
            return True
        return role.leads and epoch in (NO_EPOCH, role.epoch)

    def _load_missing(self) -> None:
        for index, epoch in self._leaderships.items():
            if index not in self._led:
                self._led[index] = self._load(index, epoch)

    def _load(self, index: int, epoch: Epoch) -> _Led:
        config = self._config.now
        shard = GroupShard(
            partial(self._streams.find_partition, OFFSETS_STREAM, index),
            config.groups.as_limits(),
            clock=self._runtime.clock,
            settled_clock=self._runtime.settled_clock,
            log=self._log.bind(offsets_partition=index),
            max_decompressed_bytes=config.max_decompressed_bytes,
            may_act=self._holds_lease,
            found_damage=partial(self._streams.found_damage, OFFSETS_STREAM, index),
            on_stall=self._log_stall,
        )
        loading = asyncio.create_task(shard.load(self._existing_streams))
        loading.add_done_callback(self._load_ended)
        return _Led(epoch, shard, loading)

    def _holds_lease(self) -> bool:
        return self._standing.holds_lease

    def _load_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._log.error("groups could not be loaded on an internal error", exc_info=fault)

    def _existing_streams(self) -> frozenset[str]:
        """All streams. The image has every stream for which a coordinator before could take an offset: it took none
        any more once the image that made this broker the leader had reached it."""
        return frozenset(self._streams.metadata.image.by_name)

    def _resign(self, index: int) -> None:
        one = self._led.pop(index)
        one.loading.cancel()
        one.shard.resign()
        leaving = asyncio.create_task(one.shard.drain())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def resign(self) -> None:
        """Resign all, for good. Writes under way are still answered."""
        self._has_ended = True
        self._forget_lease_timer()
        for index in list(self._led):
            self._resign(index)

    async def drain(self) -> None:
        """Wait for writes under way, after `resign`."""
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def loaded(self) -> None:
        """Return when every shard that there is now has loaded, or failed to, or resigned."""
        loading = [one.loading for one in self._led.values()]
        if loading:
            await asyncio.wait(loading)

    # --- the lease ----------------------------------------------------------------------------------------------

    def lease_changed(self, *, held: bool) -> None:
        """This broker has lost its lease, or has one again."""
        self._forget_lease_timer()
        if self._has_ended:
            return
        if held:
            for shard in self.serving():
                shard.process(Resumed())
            self._load_missing()
        else:
            self._lease_timer = asyncio.get_running_loop().call_later(_LEASE_GRACE_S, self._lease_stayed_away)

    def _lease_stayed_away(self) -> None:
        self._lease_timer = None
        self._log.warning("groups given up because there is no lease", partitions=len(self._led))
        for index in list(self._led):
            self._resign(index)

    def _forget_lease_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    # --- questions ----------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> GroupShard:
        """The shard of a group. Raises NotCoordinatorError, CoordinatorNotAvailableError."""
        if self._has_ended:
            raise NotCoordinatorError("this broker is stopping")
        if self._stream is None:
            raise CoordinatorNotAvailableError(f"there is no stream {OFFSETS_STREAM} yet")
        led = self._led.get(partition_of_group(group_id, self._stream.partitions))
        if led is None:
            raise NotCoordinatorError(f"this broker does not coordinate group {group_id!r}")
        self._check_lease()
        return led.shard

    def all(self) -> list[GroupShard]:
        """All shards, to be asked for what they hold. Raises CoordinatorNotAvailableError without a lease."""
        if self._led:
            self._check_lease()
        return [one.shard for one in self._led.values()]

    def _check_lease(self) -> None:
        if not self._standing.holds_lease:
            raise CoordinatorNotAvailableError("this broker has no lease: another one may coordinate by now")
        if self._standing.behind_s >= _BEHIND_MAX_S:
            raise CoordinatorNotAvailableError(
                "this broker does not apply what was decided: another may coordinate by now"
            )

    def serving(self) -> Iterator[GroupShard]:
        """The shards that have loaded."""
        return (one.shard for one in self._led.values() if one.shard.serves)

    # --- news ---------------------------------------------------------------------------------------------------

    def configure(self, config: GroupsConfig) -> None:
        """Apply other limits."""
        for one in self._led.values():
            one.shard.configure(config.as_limits())

    def streams_deleted(self, names: frozenset[str]) -> None:
        """Delete all offsets of deleted streams."""
        for one in self._led.values():
            one.shard.streams_deleted(names)

    def _log_stall(self, late_ms: int) -> None:
        """Every shard notices; one of them tells it."""
        now_s = self._runtime.clock.monotonic_s()
        if now_s >= self._stall_logged_until_s:
            self._stall_logged_until_s = now_s + STALL_GRACE_S
            self._log.warning("the event loop was blocked", late_ms=late_ms)
