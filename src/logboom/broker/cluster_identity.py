"""Which cluster the data directory of a broker belongs to: one that it founds on request, or one that it joins.

    found_cluster      an empty directory becomes that of the first broker of a new cluster, once, by its own command
    discover_cluster   a new broker asks the brokers at the addresses that it was given for the id of their cluster
    check_cluster      a broker that has founded a cluster is told to join one: it must be the same
    ask_around         one command to several brokers, of which any may answer

A broker that communicates with others never founds a cluster by being started: a machine that lost its disk would found
a second cluster beside its own, under its address, and clients that find it first would write there.

The start waits for what may change without action: a broker that cannot be reached yet, a controller that is not
elected yet. A broker that was reached and refuses this one permanently (the key, the cluster, the version) ends the
start with its message.
"""

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError
from logboom.base.ids import BrokerId
from logboom.base.ports import Disk, Ids
from logboom.base.settings import split_address
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.nodes import node_id_of
from logboom.broker.disk.data_dir import DataDir, DataDirError, Identity
from logboom.broker.peers import Address, FrameKind, PeerRefusedError, Peers, PeerUnavailableError
from logboom.broker.raft.group import OpenedGroup
from logboom.broker.raft.migration import has_member, open_member
from logboom.storage import Damage, Notice

Answered = TypeVar("Answered")

_JOIN_ANSWER_S: Final = 10.0
_CHECK_ANSWER_S: Final = 2.0
_RETRY_S: Final = 0.5
_LOG_EVERY: Final = 20
"""Rounds of questions between two log lines."""


def found_cluster(
    path: Path, disk: Disk, *, broker_id: BrokerId, cluster_id: str | None, ids: Ids, log: FilteringBoundLogger
) -> Identity:
    """Make an empty directory that of the first broker of a new cluster, its only voter. Waits for the disk.

    Completes an interrupted call. Raises DataDirError if the directory belongs to a cluster already, or to a broker
    that has joined one; StorageError, FormatVersionError, OSError.
    """
    data_dir = DataDir.open(path, disk, broker_id=broker_id, cluster_id=cluster_id, ids=ids)
    try:
        identity = data_dir.identity
        if has_member(disk) or not identity.cluster_id:
            name = f"cluster {identity.cluster_id}" if identity.cluster_id else "a broker that is to join a cluster"
            raise DataDirError(f"{path} belongs to {name} already: nothing was changed, start it")
        open_group(disk, identity, log, joins=False).files.close()
        data_dir.note_metadata()
    finally:
        data_dir.close()
    return identity


def open_group(disk: Disk, identity: Identity, log: FilteringBoundLogger, *, joins: bool) -> OpenedGroup:
    """Recover this broker's copy of the cluster's log, or make it. On a thread that may wait for the disk.

    Raises StorageError, FormatVersionError.
    """
    node_id = node_id_of(identity.broker_id, identity.directory_id)
    program = f"Logboom {importlib.metadata.version('logboom')}"
    return open_member(
        disk,
        node_id,
        program=program,
        joins=joins,
        had_metadata=identity.had_metadata,
        report=partial(_report, log),
    )


def _report(log: FilteringBoundLogger, found: Damage | Notice) -> None:
    log.warning("recovery of the cluster's log", notice=str(found))


def join_addresses(config: BrokerConfig, own: Address | None) -> list[Address]:
    """The addresses to ask for a cluster to join: all that are configured but that of this broker, so that every broker
    of a cluster may be given the same list."""
    return [one for one in (Address(*split_address(each)) for each in config.join) if one != own]


async def discover_cluster(peers: Peers, config: BrokerConfig, log: FilteringBoundLogger) -> str:
    """The name of the cluster that a new broker is to join. Asks until a broker answers.

    Raises DataDirError if there is no address to ask, PeerRefusedError if a broker refuses this one permanently.
    """
    addresses = join_addresses(config, peers.address)
    if not addresses:
        other = "another" if config.join else "a"
        raise DataDirError(
            f"the data directory {config.data_dir} belongs to no cluster yet: give the address of {other} broker with "
            "--join"
        )
    body = commands.encode(commands.Request(command=commands.Discover()))

    async def ask(address: Address) -> str:
        _, data = await peers.call_address(address, FrameKind.CONTROL, (body,), timeout_s=_JOIN_ANSWER_S)
        found: str = commands.value_of(commands.decode_answer(data), str)
        return found

    attempt = 0
    while True:
        try:
            return await ask_around(addresses, ask)
        except PeerRefusedError:
            raise
        except PeerUnavailableError as error:
            if attempt % _LOG_EVERY == 0:
                log.warning("waiting for the cluster to join", addresses=list(config.join), reason=str(error))
        attempt += 1
        await asyncio.sleep(_RETRY_S)


async def ask_around(
    addresses: Sequence[Address], ask: Callable[[Address], Awaitable[Answered]], *, patient: bool = False
) -> Answered:
    """The first answer of several brokers, asked one after the other.

    Without an answer it raises PeerRefusedError if one of them refuses this broker permanently; if `patient`, only if
    all of them do, since another one may turn up that does not. Otherwise it raises PeerUnavailableError,
    NotControllerError or OutcomeUnknownError of the last one. Anything else that `ask` raises is raised at once.
    """
    refused: PeerRefusedError | None = None
    away: LogboomError | None = None
    for address in addresses:
        try:
            return await ask(address)
        except PeerRefusedError as error:
            refused = error
        except (PeerUnavailableError, NotControllerError, OutcomeUnknownError) as error:
            away = error
    if refused is not None and (away is None or not patient):
        raise refused
    raise away or NotControllerError("no other broker is known")


async def check_cluster(peers: Peers, identity: Identity, config: BrokerConfig) -> None:
    """A broker that has founded a cluster is configured to join one: raises DataDirError if the addresses belong to
    another cluster.

    Brokers that cannot be reached are not waited for: they may belong to this broker's own cluster.
    """
    peers.identify(replace(identity.as_peer, cluster_id=""))  # as a stranger, to whom it is told which one it is
    body = commands.encode(commands.Request(command=commands.Discover()))
    for address in join_addresses(config, peers.address):
        try:
            _, data = await peers.call_address(address, FrameKind.CONTROL, (body,), timeout_s=_CHECK_ANSWER_S)
            found: str = commands.value_of(commands.decode_answer(data), str)
        except LogboomError:
            continue
        if found != identity.cluster_name:
            raise DataDirError(
                f"the data directory {config.data_dir} belongs to cluster {identity.cluster_name}, and the broker at "
                f"{address.host}:{address.port} to cluster {found}: correct broker.join, or join with an empty one"
            )
        break
    peers.identify(identity.as_peer)
