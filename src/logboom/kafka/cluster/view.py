"""The brokers and the leaders of partitions, derived from the metadata image.

As in Kafka, clients are told the brokers that are not fenced, at their listener for clients; and for a partition its
leader, if that is such a broker, and as offline the replicas on other brokers. `broker.suspected_brokers` describes
what else they are told about brokers that may just have died.

A broker that runs alone need not be registered: then it is the only broker, at its own address. A stream from the time
before replicas were recorded has one replica of each partition, on this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from logboom.base.errors import LogboomError
from logboom.base.ids import NO_BROKER, NO_EPOCH, BrokerId, PartitionIndex, StreamId
from logboom.broker.isolation import NAMED_LEASES
from logboom.kafka.errors import LeaderNotAvailableError
from logboom.metadata.assignment import Assignment, Replicas

if TYPE_CHECKING:
    from logboom.broker.broker import Broker
    from logboom.metadata import Image, Stream
    from logboom.metadata.brokers import Broker as RegisteredBroker

LISTENER: Final = "kafka"
"""The name under which brokers register their listener for clients."""


class Node(NamedTuple):
    """A broker as clients connect to it."""

    id: BrokerId
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as clients see it."""

    error: LogboomError | None
    """Why it has no leader; None if it has one."""
    leader: BrokerId
    assignment: Assignment
    offline: Replicas
    """Replicas that nobody can reach."""

    def offline_holders(self, alive: frozenset[BrokerId]) -> Replicas:
        """Offline replicas and offline observers."""
        return (*self.offline, *(one for one in self.assignment.observers if one not in alive))


class ClusterView:
    """See the module. One for a server; its answers are those of the image in force."""

    def __init__(self, broker: Broker, advertised: Callable[[], tuple[str, int]]) -> None:
        """`advertised` returns the address of this broker for clients."""
        self._broker = broker
        self._own = broker.identity.broker_id
        self._advertised = advertised
        self._image: Image | None = None
        self._has_lease = True
        self._address = ("", 0)
        self._nodes: Mapping[BrokerId, Node] = {}
        self._alive: frozenset[BrokerId] = frozenset()
        self._lost: frozenset[BrokerId] = frozenset()
        self._led_by_lost: dict[StreamId, tuple[Stream, bool]] = {}

    @property
    def own_address(self) -> tuple[str, int]:
        """Where clients connect to this broker."""
        return self._advertised()

    # --- brokers ------------------------------------------------------------------------------------------------

    def nodes(self) -> Mapping[BrokerId, Node]:
        """The brokers that clients may use, by id."""
        image, address = self._broker.catalog.image, self._advertised()
        has_lease = self._broker.cluster.registration.holds_lease
        if image is not self._image or address != self._address or has_lease != self._has_lease:
            self._image, self._address, self._has_lease = image, address, has_lease
            nodes = {id_: node for id_, one in image.brokers.items() if not one.fenced and (node := self._node(one))}
            if not has_lease and len(nodes) > 1:
                # The others may have fenced this one, which is cut off and does not hear of it: clients that believed
                # what it led would come back to it for ever.
                nodes.pop(self._own, None)
            if self._own not in image.brokers or not nodes:
                nodes[self._own] = Node(self._own, *address, None)
            self._nodes = dict(sorted(nodes.items()))
            if self._nodes.keys() != self._alive:
                self._alive = frozenset(self._nodes)
        return self._nodes

    @property
    def alive(self) -> frozenset[BrokerId]:
        """The ids of `nodes`; the same object as long as they do not change, for caches."""
        self.nodes()
        return self._alive

    def named(self) -> list[Node]:
        """The brokers that Metadata names: those, others that were fenced just now, and this one as long as it does not
        know that it was, for NAMED_LEASES.

        A client of librdkafka that hears of this broker no more fails what waits here for an answer (_DESTROY_BROKER),
        which it need not when it hears that this one leads nothing. Kafka's brokers, too, name themselves without a
        controller. But a client whose only connection is to this one asks it again and again, for as long as it is cut
        off from the others, and would not hear who leads.
        """
        return [*self.nodes().values(), *(one for one in self.fenced() if self._is_named_still(one.id))]

    def _is_named_still(self, broker: BrokerId) -> bool:
        if broker == self._own and not self._broker.catalog.image.brokers[broker].fenced:
            return self._broker.cluster.registration.missed_leases < NAMED_LEASES
        return self._broker.cluster.suspected.fenced_lately(broker)

    @property
    def lost(self) -> frozenset[BrokerId]:
        """Named brokers that were just lost; the same object as long as they do not change, for caches."""
        lost = frozenset(one for one in self.alive if self.is_lost(one))
        if lost != self._lost:
            self._lost = lost
            self._led_by_lost.clear()
        return self._lost

    def is_lost(self, broker: BrokerId) -> bool:
        """Whether a broker was just lost."""
        return broker != self._own and self._broker.cluster.suspected.lost_lately(broker)

    def fenced(self) -> list[Node]:
        """Registered brokers that clients may not use now, at the addresses they had."""
        nodes = self.nodes()
        brokers = self._broker.catalog.image.brokers.values()
        return [node for one in brokers if one.id not in nodes and (node := self._node(one))]

    def _node(self, one: RegisteredBroker) -> Node | None:
        """None if the broker has no listener for clients. This broker knows its own address, whatever port it was
        given."""
        address = self._advertised() if one.id == self._own else one.listeners.get(LISTENER)
        return None if address is None else Node(one.id, *address, one.rack)

    def controller(self) -> BrokerId:
        """Who decides about the metadata; NO_BROKER while that is not known here, as on a broker that has just started,
        or it has gone from here, or clients cannot use it. People are told it, whom another one would mislead.
        """
        leader = self._broker.controller
        return leader if leader in self.nodes() and not self.is_lost(leader) else NO_BROKER

    def controller_for_clients(self) -> BrokerId:
        """What Metadata calls the controller: this broker, where clients may use it, since it passes their requests on.

        As in Kafka since KIP-590, where Metadata names any broker that is alive. A client that was told of the
        controller itself would go on asking it when it has died: librdkafka's until the request times out. Where
        clients may not use this one, any other will do, also one that has gone from here: a broker that is cut off
        knows no others.
        """
        nodes = self.nodes()
        if self._own in nodes:
            return self._own
        return next((one for one in nodes if not self.is_lost(one)), next(iter(nodes)))

    # --- partitions ---------------------------------------------------------------------------------------------

    def assignment(self, stream: Stream, index: int) -> Assignment:
        """The assignment of an existing partition."""
        if stream.assignments:
            return stream.assignments[index]
        failed = (stream.name, PartitionIndex(index)) in self._broker.replicas.failed
        epoch = NO_EPOCH if failed else self._broker.replicas.find(stream.name, index).leader_epoch
        return Assignment(replicas=(self._own,), isr=(self._own,), leader=self._own, leader_epoch=epoch)

    def leader_is_lost(self, stream: Stream) -> bool:
        """Whether one of its partitions is led by a broker that was just lost."""
        lost = self.lost
        if not lost:
            return False
        of, found = self._led_by_lost.get(stream.id, (None, False))
        if of is not stream:
            found = any(one.leader in lost for one in stream.assignments)
            self._led_by_lost[stream.id] = stream, found
        return found

    def partition(self, stream: Stream, index: int) -> PartitionView:
        """A partition that the stream has."""
        alive, assignment = self.alive, self.assignment(stream, index)
        offline = tuple(one for one in assignment.replicas if one not in alive)
        if (leader := assignment.leader) not in alive or self.is_lost(leader):
            error = LeaderNotAvailableError(f"{stream.name}-{index} has no leader now")
            return PartitionView(error, NO_BROKER, assignment, offline)
        failure = self._broker.replicas.failed.get((stream.name, PartitionIndex(index)))
        if failure is None or leader != self._own:
            return PartitionView(None, leader, assignment, offline)
        # Its files could not be opened here, so nobody leads it until the controller has chosen another.
        isr = tuple(one for one in assignment.isr if one != leader)
        return PartitionView(failure, NO_BROKER, replace(assignment, isr=isr), (*offline, leader))
