"""What the faults of a run did to the brokers, and what those made of it: names, and how often each happened.

A fault that was planned proves nothing: a full disk that nobody writes to, a cut between two brokers that say nothing.
So what really happened is counted where it happens, in `Trace.met`: by the disk and the network that refused or kept
something, from what brokers log, and from the changes of the metadata that they follow (`invariants`).
"""

from collections.abc import Mapping
from typing import Final

LOGGED: Final[Mapping[str, str]] = {
    "broker fenced: its lease is over": "brokers fenced",
    "broker removed": "brokers removed",
    "the lease of this broker is over: nothing is committed until it is renewed": "leases lost",
    "truncated to where the leader's log goes on": "truncations of followers",
    "a fetch was refused": "fetches refused or fenced",
    "in-sync replicas not changed": "ISR changes refused",
    "metadata snapshot taken": "metadata snapshots taken",
    "members of the consensus group changed": "changes of voters",
    "damaged batch": "damaged batches found",
    "a replica is lost, others have its records": "replicas made anew",
    "preferred leaders lead again": "preferred leaders restored",
    "leader elected on request": "elections on request",
    "another broker becomes the controller: the disk of this one accepts no writes": "controllers with a bad disk",
    "groups loaded": "loads of groups",
    "recovery": "recoveries with something to tell",
    "the connection to NATS was lost": "connections to NATS lost",
    "moved from a NATS server that is leaving to another one": "moves from a nats-server that leaves",
}
"""What brokers log, and what it is counted as."""

DISK_ERRORS: Final = "errors of the disk (EIO)"
DISK_FULL: Final = "writes without room (ENOSPC)"
DISK_HANGS: Final = "operations that hung"
UNSYNCED_LOST: Final = "power failures with unsynced writes"
BYTES_KEPT: Final = "pieces kept by a cut network"
CONNECTIONS_RESET: Final = "connections broken"
BITS_FLIPPED: Final = "bits flipped"
DISKS_WIPED: Final = "disks wiped"
FILES_LOST: Final = "files of partitions lost"
DISKS_PUT_BACK: Final = "disks put back to older copies"
STRANGERS: Final = "brokers with an empty disk that were refused"
REQUESTS_REPEATED: Final = "requests to the controller that came again, late"
STEPS_HELD: Final = "pauses that held something up"
NATS_ACKS: Final = "acks on NATS"
NATS_DUPLICATES: Final = "acks on NATS of what was there already"
NATS_EXPECTATIONS: Final = "expectations on NATS that did not hold"
NATS_NO_RESPONDERS: Final = "messages on NATS that nobody was subscribed to"
NATS_SLOW_CONSUMERS: Final = "brokers cut off by a nats-server"
NATS_LEFT: Final = "nats-servers that left in good order"
NATS_REPLACED: Final = "nats-servers replaced by others"
NATS_FORWARDED: Final = "messages handed on between nats-servers"
NATS_LATE: Final = "messages late between nats-servers"
NATS_ROUTES_LOST: Final = "routes between nats-servers lost"
NATS_TWICE: Final = "messages late between nats-servers that were stored twice"
NATS_MEMBERS: Final = "streams that left a group on NATS, and joined it again"
NATS_SHARED: Final = "acks on NATS of streams that share their subjects"
NATS_RETRIED_TWICE: Final = "retries on NATS that another stream of the group has stored"
NATS_MOVES: Final = "moves from a nats-server that leaves"

ELECTIONS: Final = "elections of partition leaders"
ISR_SHRINKS: Final = "ISR shrinks"
ISR_EXPANSIONS: Final = "ISR expansions"
BELOW_MINIMUM: Final = "eligible leader replicas kept"
LEADERLESS: Final = "partitions without a leader"
REASSIGNED: Final = "replicas moved"
BACK: Final = "brokers registered anew"
COMPARED: Final = "leaders chosen by their logs, all in-sync replicas having been killed"
UNCLEAN: Final = "unclean elections"
UNCLEAN_LOSSES: Final = "unclean elections that gave records up, and ended a run"
CONTROLLERS: Final = "controllers"
LOOKS_AT_WELL: Final = "looks at partitions of which nothing was wrong"

OF_ONE_NODE: Final = (DISK_ERRORS, DISK_FULL, DISK_HANGS, UNSYNCED_LOST, CONNECTIONS_RESET)
"""What a long run of one node has to meet."""
OF_CLUSTERS: Final = (
    *OF_ONE_NODE,
    BITS_FLIPPED,
    DISKS_WIPED,
    FILES_LOST,
    DISKS_PUT_BACK,
    BYTES_KEPT,
    STEPS_HELD,
    ELECTIONS,
    ISR_SHRINKS,
    ISR_EXPANSIONS,
    BELOW_MINIMUM,
    LEADERLESS,
    BACK,
    CONTROLLERS,
    LOOKS_AT_WELL,
    NATS_ACKS,
    NATS_DUPLICATES,
    NATS_EXPECTATIONS,
    NATS_NO_RESPONDERS,
    NATS_SLOW_CONSUMERS,
    NATS_LEFT,
    NATS_REPLACED,
    NATS_FORWARDED,
    NATS_LATE,
    NATS_ROUTES_LOST,
    NATS_MOVES,
    NATS_MEMBERS,
    NATS_SHARED,
    NATS_RETRIED_TWICE,
    "connections to NATS lost",
    "brokers fenced",
    "leases lost",
    "truncations of followers",
    "fetches refused or fenced",
    "metadata snapshots taken",
    "preferred leaders restored",
    "loads of groups",
)
"""What a long run of clusters has to meet."""
