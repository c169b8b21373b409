"""A broker's data directory: its owner, its format version, and the lock that keeps a second broker out.

    format.json   version of the layout and of everything in it; a newer one is refused by name
    node.json     cluster id, broker id, directory id: made once, kept for life; the cluster's generation
    lock          locked by the running broker; its text is the process id, for people
    metadata/     this broker's copy of the cluster's metadata
    high-watermarks  how far replicated partitions were committed, as a start (`high_watermarks`)
    scrub         how far the scrubber is (`scrubber`)
    clock         what time it was last (`clock_note`)
    nats-server.conf  of the nats-server beside the broker, where it runs one (`app` rewrites it at each start)
    streams/      one directory per partition, `<stream>-<partition>`; `*.deleted` ones wait for removal

Knows these files, through the Disk port alone; not what is in the two directories, nor what a format holds (`storage`).
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from logboom.base.errors import StorageError
from logboom.base.ids import BrokerId, DirectoryId
from logboom.base.ports import Disk, Ids, Lock, LockHeldError
from logboom.broker.peers import GENERATION_MARK, PeerIdentity
from logboom.storage import claim_format, read_whole, replace_whole, retriable_error_for

METADATA_DIR: Final = "metadata"
STREAMS_DIR: Final = "streams"
HIGH_WATERMARKS_FILE: Final = "high-watermarks"
SCRUB_FILE: Final = "scrub"
CLOCK_FILE: Final = "clock"
_FORMAT_FILE: Final = "format.json"
_NODE_FILE: Final = "node.json"
_LOCK_FILE: Final = "lock"
_LOST_AND_FOUND: Final = "lost+found"
NATS_SERVER_FILE: Final = "nats-server.conf"
_REMEDY: Final = (
    "Restore it from a backup; or remove this broker from its cluster, empty its data directory, and let it join again."
)
_ASKS: Final = ""
"""The cluster id of a broker that does not know it yet."""
_ENTRIES: Final = frozenset(
    {
        METADATA_DIR,
        STREAMS_DIR,
        HIGH_WATERMARKS_FILE,
        SCRUB_FILE,
        CLOCK_FILE,
        _FORMAT_FILE,
        _NODE_FILE,
        _LOCK_FILE,
        _LOST_AND_FOUND,
        NATS_SERVER_FILE,
    }
)


class DataDirError(StorageError):
    """The data directory cannot be used as it is: it is in use, belongs to another broker, or is not a data
    directory."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies this broker for as long as its data lives."""

    cluster_id: str
    """Empty for a new broker that is to join a cluster and has not reached it yet."""
    broker_id: BrokerId
    directory_id: DirectoryId
    """Tells two disks of one broker apart, also after one was swapped for an empty one."""
    generation: int = 0
    """How often the cluster was founded again after the majority of its voters was lost (`raft.quorum_recovery`)."""
    left: str = ""
    """The generation that it leaves to join the next one; empty once it has joined."""
    had_metadata: bool = False
    """Whether this directory has ever had metadata. A member that lost them may have forgotten a vote, so it must not
    begin anew under its directory id."""

    @property
    def as_peer(self) -> PeerIdentity:
        """The same in the form that other brokers get."""
        return PeerIdentity(self.broker_id, self.directory_id, self.cluster_name)

    @property
    def cluster_name(self) -> str:
        """The cluster's id with its generation; brokers of another one are refused."""
        return f"{self.cluster_id}{GENERATION_MARK}{self.generation}" if self.generation else self.cluster_id


class DataDir:
    """An open, locked directory. Life: `open`, then `close`, which gives the lock back, as the process's end does."""

    def __init__(self, path: Path, disk: Disk, identity: Identity, lock: Lock) -> None:
        self.path = path
        """Its place as the configuration names it, for messages alone."""
        self.identity = identity
        self._disk = disk
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: Path,
        disk: Disk,
        *,
        broker_id: BrokerId,
        cluster_id: str | None,
        joins: bool = False,
        founds: bool = True,
        ids: Ids,
    ) -> "DataDir":
        """Make the directory at the root of `disk`, or check the one that is there.

        A new one gets a cluster id of its own if it `founds` a cluster, or `joins` one and has to ask for its id
        (`join_cluster`); one that is to do neither is refused, and nothing is made.

        Raises DataDirError, FormatVersionError or OSError.
        """
        disk.make_root()
        lock = _lock(path, disk)
        try:
            _check_unknown_entries(path, disk)
            if not (founds or joins):
                _check_used(path, disk, broker_id)
            claim_format(disk, f"Logboom {version('logboom')}")
            if joins and cluster_id is None:
                cluster_id = _ASKS
            identity = _identity(path, disk, broker_id, cluster_id, ids)
            for name in (METADATA_DIR, STREAMS_DIR):
                disk.make_dir(name)
            disk.sync_dir(".")
        except BaseException:  # whatever ends the start, the next one must not find the directory locked
            lock.close()
            raise
        return cls(path, disk, identity, lock)

    def join_cluster(self, cluster_name: str) -> None:
        """Belong to a cluster from now on. Waits for the disk.

        Raises DataDirError if this broker is to follow its cluster into a new generation and the cluster has none,
        OSError.
        """
        assert not self.identity.cluster_id, "a broker belongs to one cluster for life"
        cluster_id, generation = _named(cluster_name)
        left_id, left_generation = _named(self.identity.left)
        if left_id and (cluster_id != left_id or generation <= left_generation):
            raise DataDirError(
                f"{self.path} is to follow cluster {left_id} beyond generation {left_generation}, and here is "
                f"generation {generation} of cluster {cluster_id}: only brokers of an older generation rejoin. Remove "
                f"broker {self.identity.broker_id} from the cluster, empty the directory, and let it join again"
            )
        self.identity = replace(self.identity, cluster_id=cluster_id, generation=generation, left="")
        _write_identity(self._disk, self.identity)

    def begin_generation(self, *, joins: bool) -> None:
        """Belong to the next generation of the cluster, or with `joins` to none until one is joined. Raises OSError."""
        if not joins:
            self.identity = replace(self.identity, generation=self.identity.generation + 1)
        elif self.identity.cluster_id:
            self.identity = replace(self.identity, cluster_id=_ASKS, generation=0, left=self.identity.cluster_name)
        _write_identity(self._disk, self.identity)

    def note_metadata(self) -> None:
        """The metadata are there now: if they are missing from now on, they are lost. Raises OSError, unless room is
        lacking for the note: the next start tries again."""
        if self.identity.had_metadata:
            return
        noted = replace(self.identity, had_metadata=True)
        try:
            _write_identity(self._disk, noted)
        except OSError as error:
            if retriable_error_for(error, _NODE_FILE) is None:
                raise
        else:
            self.identity = noted

    @property
    def unknown_entries(self) -> list[str]:
        """Names in it that Logboom did not make: they may have been meant for another directory."""
        return [
            name
            for name in self._disk.list(".")
            if name not in _ENTRIES and name.removesuffix(".new").removesuffix(".tmp") not in _ENTRIES
        ]

    def close(self) -> None:
        """Let another broker have it. Idempotent."""
        self._lock.close()


def identity_of(disk: Disk) -> Identity:
    """The identity in a data directory that is only looked at. Raises DataDirError, OSError."""
    data = read_whole(disk, _NODE_FILE)
    if data is None:
        raise DataDirError(f"{_NODE_FILE} is missing")
    return _parse(Path(_NODE_FILE), data)


def _lock(path: Path, disk: Disk) -> Lock:
    try:
        return disk.lock(_LOCK_FILE)
    except LockHeldError as error:
        by = f" (process {error.holder})" if error.holder else ""
        raise DataDirError(
            f"the data directory {path} is in use by another broker{by}; stop it or name another directory"
        ) from None


def _check_unknown_entries(path: Path, disk: Disk) -> None:
    """A directory without a format file must be empty but for what an interrupted first start leaves."""
    found = [name for name in disk.list(".") if not name.startswith(_FORMAT_FILE)]
    unknown = [name for name in found if name not in (_LOCK_FILE, _LOST_AND_FOUND, NATS_SERVER_FILE)]
    if unknown and not disk.exists(_FORMAT_FILE):
        raise DataDirError(
            f"{path} contains other files ({', '.join(unknown[:3])}) and no {_FORMAT_FILE}: it is not a data "
            "directory of Logboom; name an empty or a new one"
        )


def _check_used(path: Path, disk: Disk, broker_id: BrokerId) -> None:
    if disk.exists(_NODE_FILE) or disk.exists(METADATA_DIR):
        return
    raise DataDirError(
        f"the data directory {path} is empty, and a broker with --peer does not found a cluster by itself. To join an "
        "existing cluster, use --join HOST:PORT. For a new cluster, run this command once, on its first broker only: "
        f"logboom cluster found --data {path} --node-id {broker_id}"
    )


def _identity(path: Path, disk: Disk, broker_id: BrokerId, cluster_id: str | None, ids: Ids) -> Identity:
    file = path / _NODE_FILE
    data = read_whole(disk, _NODE_FILE)
    if data is None:
        if disk.exists(METADATA_DIR):
            raise DataDirError(f"{file} is missing from a data directory that has been used; restore it")
        chosen = _random_id(ids) if cluster_id is None else cluster_id
        made = Identity(chosen, broker_id, DirectoryId(_random_id(ids)))
        _write_identity(disk, made)
        return made
    identity = _parse(file, data)
    if identity.broker_id != broker_id:
        raise DataDirError(f"the data directory {path} belongs to broker {identity.broker_id}, not {broker_id}")
    if cluster_id and identity.cluster_id not in (cluster_id, _ASKS):
        raise DataDirError(f"the data directory {path} belongs to cluster {identity.cluster_id}, not {cluster_id}")
    return identity


def _write_identity(disk: Disk, identity: Identity) -> None:
    node: dict[str, object] = {
        "cluster_id": identity.cluster_id,
        "broker_id": identity.broker_id,
        "directory_id": identity.directory_id,
    }
    if identity.generation:
        node["generation"] = identity.generation
    if identity.left:
        node["left"] = identity.left
    if identity.had_metadata:
        node["had_metadata"] = True
    replace_whole(disk, ".", _NODE_FILE, json.dumps(node, indent=2).encode() + b"\n", sync=True)


def _parse(file: Path, data: bytes) -> Identity:
    try:
        node: Any = json.loads(data)
    except ValueError as error:
        raise DataDirError(f"{file} is no JSON: {error}. {_REMEDY}") from None
    if not isinstance(node, Mapping):
        raise DataDirError(f"{file} is no JSON object. {_REMEDY}")
    try:
        return Identity(
            str(node["cluster_id"]),
            BrokerId(int(node["broker_id"])),
            DirectoryId(str(node["directory_id"])),
            int(node.get("generation", 0)),
            str(node.get("left", "")),
            bool(node.get("had_metadata", False)),
        )
    except (KeyError, ValueError, TypeError):
        raise DataDirError(f"{file} does not name cluster_id, broker_id and directory_id. {_REMEDY}") from None


def _named(cluster_name: str) -> tuple[str, int]:
    """Id and generation of a cluster."""
    cluster_id, _, generation = cluster_name.partition(GENERATION_MARK)
    return cluster_id, int(generation) if generation.isdecimal() else 0


def _random_id(ids: Ids) -> str:
    """A UUID as Kafka writes cluster ids: 22 characters of URL-safe base 64."""
    return base64.urlsafe_b64encode(ids.uuid().bytes).rstrip(b"=").decode()
