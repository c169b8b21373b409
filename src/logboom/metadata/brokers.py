"""The brokers of a cluster, as the image has them.

A broker registers with each start of its process and is fenced until it has recovered its logs; it is fenced again when
its lease ends (`leases`). Only an active broker leads partitions and is in their ISRs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UnsetType

from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId
from logboom.metadata.records import BrokerChanged, BrokerRegistered


def version_of_registration(*, observer: bool, levels: tuple[int, int] | None) -> dict[str, Any]:
    """The version of a registration and the fields for which it needs it: the oldest one that can say all of it."""
    fields: dict[str, Any] = {"version": 2, "observer": True} if observer else {}
    return fields if levels is None else {**fields, "version": 3, "levels": levels}


@dataclass(frozen=True, slots=True)
class Broker:
    """One registered broker."""

    id: BrokerId
    epoch: BrokerEpoch
    """Higher with each registration of any broker; what carries an older one comes from an earlier process."""
    directory_id: DirectoryId
    incarnation: str
    listeners: Mapping[str, tuple[str, int]]
    rack: str | None
    failure_domain: str
    software: str
    fenced: bool = True
    shutting_down: bool = False
    """It is about to end: leads nothing, joins no ISR."""
    draining: bool = False
    """It is to leave the cluster: gets no new partitions."""
    observer: bool = False
    """It only observes: holds no replica that counts, leads nothing, and does not vote on the metadata."""
    levels: tuple[int, int] | None = None
    """The metadata levels that its program speaks; None if it registered before the cluster wrote them down."""

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and be in their ISRs."""
        return not (self.fenced or self.shutting_down)

    @property
    def placeable(self) -> bool:
        """Whether new partitions may be placed on it: not while it shuts down, but once it is fenced, as on any other
        broker that is down (Kafka's `UsableBrokerIterator`)."""
        return not (self.draining or (self.shutting_down and not self.fenced))

    @property
    def domain(self) -> str:
        """The name of what fails together with it, or a name of its own."""
        return self.failure_domain or f"broker {self.id}"

    @classmethod
    def registered(cls, record: BrokerRegistered, *, draining: bool) -> "Broker":
        """The broker after a registration; draining lasts longer than a process."""
        return cls(
            id=record.id,
            epoch=record.epoch,
            directory_id=record.directory_id,
            incarnation=record.incarnation,
            listeners=dict(record.listeners),
            rack=record.rack,
            failure_domain=record.failure_domain,
            software=record.software,
            draining=draining,
            observer=record.observer is True,
            levels=None if isinstance(record.levels, UnsetType) else record.levels,
        )

    def changed(self, record: BrokerChanged) -> "Broker":
        """The broker after a change."""
        return replace(
            self,
            fenced=self.fenced if record.fenced is None else record.fenced,
            shutting_down=self.shutting_down if record.shutting_down is None else record.shutting_down,
            draining=self.draining if record.draining is None else record.draining,
        )

    def records(self) -> "tuple[BrokerRegistered, BrokerChanged]":
        """The records that give this broker."""
        registered = BrokerRegistered(
            id=self.id,
            epoch=self.epoch,
            directory_id=self.directory_id,
            incarnation=self.incarnation,
            listeners=dict(self.listeners),
            rack=self.rack,
            failure_domain=self.failure_domain,
            software=self.software,
            **version_of_registration(observer=self.observer, levels=self.levels),
        )
        changed = BrokerChanged(
            id=self.id, fenced=self.fenced, shutting_down=self.shutting_down, draining=self.draining
        )
        return registered, changed
