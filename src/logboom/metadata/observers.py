"""Observers: copies of a partition that only serve readers, outside of everything that is promised.

A stream says how many observers each of its partitions has (`logboom.observers`). Their places are decided here, again
whenever brokers come and go: an observer has nothing that nobody else has, so it is moved by dropping it and creating
another one.

A new observer is placed by these rules, in this order:

1. Never on a broker with a replica of the partition, nor on one that is drained or shuts down.
2. On active brokers before fenced ones, and on brokers that only observe before others.
3. Away from the failure domains, then from the racks, of all other copies, so that a rack without a copy gets one.
4. On the broker with the fewest copies of all partitions.

Existing observers stay where they are as long as the rules allow it. Pure.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from logboom.base.errors import InvalidConfigError
from logboom.base.ids import BrokerId, StreamName
from logboom.metadata.assignment import Assignment, Eligibility, PartitionChange, PartitionUpdate, Replicas, decide
from logboom.metadata.brokers import Broker
from logboom.metadata.image import Image, Stream
from logboom.metadata.membership import MinimumOf, partitions_changed
from logboom.metadata.records import PartitionsChanged

OBSERVERS: Final = "logboom.observers"
"""The stream's setting: how many observers each of its partitions has."""
ObserversOf: TypeAlias = Callable[[Stream], int]
"""The value in force for a stream, which depends on defaults that the image does not know."""
Copies: TypeAlias = Counter[BrokerId]
"""How many copies of partitions each broker has."""


def copies(image: Image) -> Copies:
    """The existing copies."""
    return Counter(one for stream in image for assignment in stream.assignments for one in assignment.holders)


def choose(
    brokers: Mapping[BrokerId, Broker], held: Copies, replicas: Replicas, *, now: Replicas = (), wanted: int
) -> Replicas:
    """The observers of a partition with these `replicas`, as many as are wanted or as there are brokers for.

    `now`: those that it has. `held`, in which it is, is brought up to date.
    """
    chosen = [one for one in now if one in brokers and one not in replicas and not brokers[one].draining]
    chosen.sort(key=lambda one: not brokers[one].observer)
    del chosen[wanted:]
    while len(chosen) < wanted:
        there = [brokers[one] for one in (*replicas, *chosen) if one in brokers]
        racks, domains = {one.rack for one in there}, {one.domain for one in there}

        def cost(one: Broker, racks: set[str | None] = racks, domains: set[str] = domains) -> tuple[int, ...]:
            return (one.fenced, not one.observer, one.domain in domains, one.rack in racks, held[one.id], one.id)

        free = [one for one in brokers.values() if one.placeable and one.id not in chosen and one.id not in replicas]
        if not free:
            break
        best = min(free, key=cost).id
        chosen.append(best)
        held[best] += 1
    held.subtract(one for one in now if one not in chosen)
    return tuple(sorted(chosen))


def observe(
    image: Image, stream: Stream, held: Copies, observers_of: ObserversOf, minimum_of: MinimumOf
) -> tuple[PartitionsChanged, ...]:
    """Bring the observers of a stream to what it asks for, as far as there are brokers. No record where nothing
    changes. `held` is `copies(image)`, and is brought up to date."""
    wanted = observers_of(stream)
    rules = Eligibility(image.is_active, minimum_of(stream))
    changes: list[PartitionChange] = []
    for index, before in enumerate(stream.assignments):
        if not wanted and not before.observers:
            continue
        chosen = choose(image.brokers, held, before.replicas, now=before.observers, wanted=wanted)
        if chosen != before.observers:
            change = decide(index, before, PartitionUpdate(observers=chosen), rules)
            changes += [] if change is None else [change]
    return tuple(partitions_changed(stream, changes))


def observe_all(image: Image, observers_of: ObserversOf, minimum_of: MinimumOf) -> tuple[PartitionsChanged, ...]:
    """`observe` for all streams: after brokers came, left or are drained."""
    held = copies(image)
    return tuple(record for stream in image for record in observe(image, stream, held, observers_of, minimum_of))


def reconfigured(
    image: Image, name: str, wanted: str | None, observers_of: ObserversOf, minimum_of: MinimumOf
) -> tuple[PartitionsChanged, ...]:
    """The observers of a stream whose settings have just changed. `wanted`: the number that was asked for in so many
    words, if one was. Raises InvalidConfigError if there are not as many brokers."""
    stream = image.by_name[StreamName(name)]
    records = observe(image, stream, copies(image), observers_of, minimum_of)
    if wanted is not None:
        changed = {change.index: change for record in records for change in record.changes}
        check_enough(
            wanted,
            [one.after(changed[n]) if n in changed else one for n, one in enumerate(stream.assignments)],
            image.brokers,
        )
    return records


def check_enough(
    wanted: str, assignments: "list[Assignment] | tuple[Assignment, ...]", brokers: Mapping[BrokerId, Broker]
) -> None:
    """Raises InvalidConfigError if a partition has fewer observers than were asked for."""
    for index, one in enumerate(assignments):
        if len(one.observers) < int(wanted):
            raise InvalidConfigError(
                f"{OBSERVERS}={wanted} cannot be had: partition {index} has replicas on {len(one.replicas)} of "
                f"{len(brokers)} brokers, and {len(one.observers)} of the others could observe it"
            )
    if not assignments and int(wanted):
        raise InvalidConfigError(f"{OBSERVERS}={wanted} cannot be had with one broker")
