"""What the nodes of one machine share on its disk: their list, the cluster's key, and a directory for each.

    DIR/cluster.json    the nodes with their addresses, and while they run with their processes and states
    DIR/cluster.key     what the brokers prove to each other that they know; made on first use, for its owner alone
    DIR/node-1 ...      the data directory of each node
    DIR/control.sock    while a supervisor runs: see `remote`

Must not know what a node does with any of it.
"""

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from logboom.base.errors import LogboomError
from logboom.base.settings import join_address, split_address
from logboom.host.tcp_ports import hold_free_port, hold_port, port_of
from logboom.peer.key import KEY_BYTES, format_cluster_key

FOLDER_DEFAULT: Final = Path("logboom-cluster")
"""The default folder, in the working directory of the command."""
LIST_NAME: Final = "cluster.json"
KEY_NAME: Final = "cluster.key"
NATS_SERVER_FILE: Final = "nats-server.conf"
"""Of the nats-server that the supervisor keeps up, where it does."""
_LOCK_NAME: Final = ".cluster.lock"
_BEFORE_THE_LIST: Final = (KEY_NAME, f".{KEY_NAME}.new", f".{LIST_NAME}.new", _LOCK_NAME, NATS_SERVER_FILE)
"""Files that a first start leaves if it does not complete."""
_VERSION: Final = 1


class FolderError(LogboomError):
    """A folder cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node listens and where its data is."""

    id: int
    kafka: str
    peer: str
    http: str | None
    """None where metrics and health are not served."""
    data: str


@dataclass(frozen=True, slots=True)
class Listeners:
    """Where the first node listens; the ports of the others follow its own. With port 0 each node gets a free port,
    which it keeps."""

    kafka: str
    peer: str
    http: str | None


class Folder:
    """The list of nodes in a folder. Life: `open`, under a lock that nobody else gets until `close`."""

    def __init__(self, path: Path, lock: int, places: list[Place], *, founded: bool) -> None:
        self.path = path
        self.places = places
        self.founded = founded
        """Whether the first node has founded the cluster; from then on every node is given the others."""
        self._lock = lock
        self._held: list[socket.socket] = []
        """One for each port of the nodes: it is theirs also before they listen and while they are down."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """The folder, made where it is missing. Raises FolderError where it is in use or holds something else,
        OSError."""
        path = path.absolute()
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            listing = read_list(path) if (path / LIST_NAME).exists() else _new(path)
        except BlockingIOError:
            os.close(lock)
            raise FolderError(f"{path} is in use: its nodes run already; `logboom cluster status` shows them") from None
        except BaseException:  # an interrupt, too: the next start must not find the folder locked
            os.close(lock)
            raise
        return cls(path, lock, places_of(listing), founded=bool(listing["founded"]))

    def lay_out(self, node_ids: Sequence[int], listeners: Listeners, *, keep: bool) -> None:
        """Give each of the nodes its place, the n-th the n-th ports. With `keep` those that have one stay there.
        Raises FolderError where there are no free ports."""
        before = {place.id: place for place in self.places}
        used = {split_address(each)[1] for place in self.places for each in _addresses(place)}
        for number, node_id in enumerate(node_ids):
            old = before.get(node_id)
            if old is not None and keep:
                continue
            before[node_id] = Place(
                node_id,
                self._nth(listeners.kafka, number, None if old is None else old.kafka, used),
                self._nth(listeners.peer, number, None if old is None else old.peer, used),
                self._nth(listeners.http, number, None if old is None else old.http, used)
                if listeners.http is not None
                else None,
                str(self.path / f"node-{node_id}"),
            )
        self.places = sorted(before.values(), key=lambda place: place.id)

    def hold(self, address: str) -> bool:
        """Keep the port of an address for its node until `close`. False where another program listens there."""
        try:
            self._held.append(hold_port(*split_address(address)))
        except OSError:
            return False
        return True

    def place(self, node_id: int) -> Place:
        """The place of a node that has to be in the list."""
        return next(each for each in self.places if each.id == node_id)

    def key_file(self) -> Path:
        """The cluster's key; made where it is missing. Raises OSError."""
        path = self.path / KEY_NAME
        if not path.exists():
            fresh = self.path / f".{KEY_NAME}.new"
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(format_cluster_key(secrets.token_bytes(KEY_BYTES)))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        return path

    def write(self, processes: dict[int, tuple[int | None, str]]) -> None:
        """Write the list; `processes`: process id and state of each node. Whoever reads it sees a whole one."""
        nodes = []
        for place in self.places:
            pid, state = processes.get(place.id, (None, "down"))
            nodes.append({**asdict(place), "pid": pid, "state": state})
        listing = {"version": _VERSION, "supervisor": os.getpid(), "founded": self.founded, "nodes": nodes}
        fresh = self.path / f".{LIST_NAME}.new"
        fresh.write_text(json.dumps(listing, indent=2) + "\n")
        fresh.replace(self.path / LIST_NAME)

    def close(self) -> None:
        """Let others use the folder and the ports."""
        for held in self._held:
            held.close()
        os.close(self._lock)

    def _nth(self, first: str, number: int, old: str | None, used: set[int]) -> str:
        host, port = split_address(first)
        if port:
            return join_address(host, port + number)
        if old is not None and split_address(old)[0] == host:
            return old
        while port == 0 or port in used:  # one that a node of this folder has which is down
            try:
                held = hold_free_port(host)
            except OSError as error:
                raise FolderError(f"no free port was found at {host}: {error}") from None
            self._held.append(held)
            port = port_of(held)
        used.add(port)
        return join_address(host, port)


def read_list(path: Path) -> dict[str, Any]:
    """What a folder's list says. Raises FolderError."""
    file = path / LIST_NAME
    try:
        listing = json.loads(file.read_bytes())
        places_of(listing)
    except FileNotFoundError:
        raise FolderError(
            f"there is no cluster in {path}: `logboom cluster up` makes one, --data names another"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise FolderError(f"{file} is not a list of nodes that this version of Logboom can read") from None
    assert isinstance(listing, dict)
    return listing


def _new(path: Path) -> dict[str, Any]:
    strange = sorted(each.name for each in path.iterdir() if each.name not in _BEFORE_THE_LIST)
    if strange:
        raise FolderError(f"{path} holds {strange[0]} and is not the folder of a cluster; name another one with --data")
    return {"nodes": [], "founded": False}


def places_of(listing: dict[str, Any]) -> list[Place]:
    """The places in a list."""
    return [Place(**{name: node[name] for name in Place.__slots__}) for node in listing["nodes"]]


def _addresses(place: Place) -> Iterator[str]:
    yield from (each for each in (place.kafka, place.peer, place.http) if each is not None)
