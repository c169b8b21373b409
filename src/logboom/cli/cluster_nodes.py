"""Nodes of one machine under one supervisor: what each is started with, and how a person is shown them.

Shared by `logboom cluster up` and `logboom serve --processes N`. What a node does with its options is `serve`'s affair.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import typer

from logboom.app.config import LogConfig, LogFormat, NodeConfig
from logboom.app.log import open_log
from logboom.app.supervisor.folder import FOLDER_DEFAULT, NATS_SERVER_FILE, Folder, Place
from logboom.app.supervisor.nats_server import EmbeddedNats
from logboom.app.supervisor.run import ClusterPlan, run_nodes
from logboom.base.settings import join_address, split_address
from logboom.cli.cluster_view import Cluster, look
from logboom.cli.common import fail, note, plural, print_json
from logboom.nats.config import EMBEDDED

_INTERNAL: Final = "__"
_COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")
_EVERYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # not listened on here


@dataclass(frozen=True, slots=True)
class Common:
    """What all nodes are started with."""

    config: Path | None
    settings: Sequence[str]
    key: Path
    join: Sequence[str] = ()
    """Where brokers of other machines listen for brokers."""
    nats: EmbeddedNats | None = None
    """The nats-server that this process keeps up for all of them, once it is started."""
    advertised: Mapping[str, str] = field(default_factory=dict)
    """Addresses that the first node tells others to connect to, by their settings; the ports of the others follow."""


def hold_ports(folder: Folder, places: Sequence[Place]) -> None:
    """Keep the ports of these places for their nodes. Ends the command where one is taken, before anything starts."""
    taken = [
        f"{address} (node {place.id}, {listener})"
        for place in places
        for listener, address in (("Kafka", place.kafka), ("peers", place.peer), ("HTTP", place.http))
        if address is not None and not folder.hold(address)
    ]
    if taken:
        fail(f"taken by another program: {', '.join(taken)}; choose other ports, or port 0 for free ones")


def command(common: Common, folder: Folder) -> Callable[[Place, bool], list[str]]:
    """The command line of each node; see `ClusterPlan.command`."""

    def build(place: Place, joining: bool) -> list[str]:
        options = ["--node-id", str(place.id), "--data", place.data, "--kafka", place.kafka, "--peer", place.peer]
        options += ["--http", place.http or "null", "--key", str(common.key)]
        options += [] if common.config is None else ["--config", str(common.config)]
        options += [] if common.nats is None else ["--nats", common.nats.url]
        number = [each.id for each in folder.places].index(place.id)
        advertised = [f"{name}={_following(address, number)}" for name, address in common.advertised.items()]
        for setting in [*common.settings, *advertised]:
            options += ["--set", setting]
        others = [reachable(each.peer) for each in folder.places if each.id != place.id] if folder.founded else []
        for address in [*common.join, *others] if joining else []:
            options += ["--join", address]
        return [sys.executable, "-P", "-m", "logboom.cli", "serve", "--json", *options]

    return build


def _following(address: str, number: int) -> str:
    host, port = split_address(address)
    return join_address(host, port + number)


def embedded_nats(config: NodeConfig, folder: Folder, *, free_port: bool) -> EmbeddedNats | None:
    """The nats-server for all nodes, where their settings ask for one of this machine."""
    if config.nats.servers != [EMBEDDED]:
        return None
    host, port = split_address(config.nats.embedded_listen)
    listen = join_address(host, 0 if free_port else port)
    return EmbeddedNats(listen, folder.path / NATS_SERVER_FILE, open_log(config.log))


def data_option(folder: Folder) -> str:
    """What a command given in the same directory needs in order to mean this folder."""
    if folder.path == FOLDER_DEFAULT.absolute():
        return ""
    here = Path.cwd()
    return f" --data {folder.path.relative_to(here) if folder.path.is_relative_to(here) else folder.path}"


def reachable(address: str) -> str:
    """Where this machine reaches a listener, also one that listens on every interface."""
    host, port = split_address(address)
    return join_address(_EVERYWHERE.get(host, host), port)


def is_text(config: LogConfig) -> bool:
    """Whether this command's own log is for people, as a node's would be in its place."""
    return config.format is LogFormat.TEXT or (config.format is LogFormat.AUTO and sys.stderr.isatty())


def log_settings(config: LogConfig) -> list[str]:
    """The setting that gives the nodes' logs that format: theirs go to a pipe."""
    return ["log.format=text"] if is_text(config) else []


def run(plan: ClusterPlan, show: "Shown") -> None:
    """Run until a stop; then let others use the folder."""
    try:
        run_nodes(plan, show)
    finally:
        plan.folder.close()


def missing(places: Sequence[Place], *, internal_replicas: int) -> Callable[[], Awaitable[str | None]]:
    """What keeps the nodes from being one cluster; see `ClusterPlan.missing`. Partitions of internal streams must have
    this many replicas, all in sync."""

    async def ask() -> str | None:
        cluster = await _look(places)
        if cluster is None:
            return "no node answers"
        if cluster.controller is None:
            return "there is no controller"
        for place in places:
            node = cluster.nodes.get(place.id)
            if node is None:
                return f"node {place.id} is not known to the others"
            if node.fenced:
                return f"node {place.id} is fenced"
        behind = {each.stream for each in cluster.troubles}
        for (stream, _), replicas in cluster.placed.items():
            if stream.startswith(_INTERNAL) and (len(replicas) < internal_replicas or stream in behind):
                return f"{stream} has not all its replicas"
        return None

    return ask


def controller(places: Sequence[Place]) -> Callable[[], Awaitable[int | None]]:
    """Which node leads the cluster; see `ClusterPlan.controller`."""

    async def ask() -> int | None:
        cluster = await _look(places)
        return None if cluster is None else cluster.controller

    return ask


async def _look(places: Sequence[Place]) -> Cluster | None:
    cluster, _ = await asyncio.to_thread(look, [reachable(place.kafka) for place in places])
    return cluster


class Shown:
    """What a person sees of the nodes: results on standard output, events and logs on standard error."""

    def __init__(
        self,
        folder: Folder,
        log: LogConfig,
        tries: Sequence[str] = (),
        *,
        nats: Callable[[], str | None] = lambda: None,
        as_json: bool,
    ) -> None:
        """`tries`: commands to try once the nodes are ready. `nats`: where publishers reach NATS."""
        self._folder = folder
        self._nats = nats
        self._tries = tries
        self._as_json = as_json
        self._log = None if is_text(log) else open_log(log)
        self._colours = sys.stderr.isatty()

    def log_line(self, node_id: int, line: str) -> None:
        """JSON stays JSON and says of which node it is; text gets the name in front."""
        if line.startswith('{"'):
            sys.stderr.write(f'{{"node": {node_id}, {line[1:]}\n')
        else:
            sys.stderr.write(f"{self._name(node_id)} | {line}\n")
        sys.stderr.flush()

    def event(self, node_id: int, words: str) -> None:
        """One sentence about a node, in the format of the logs between which it stands."""
        if self._log is None:
            note(f"{self._name(node_id)} {words}")
        else:
            self._log.info(words, node=node_id)

    def node_ready(self, node_id: int, seconds: float) -> None:
        """Progress of the start."""
        self.event(node_id, f"is ready after {seconds:.1f} s")

    def progress(self, what: str, seconds: float) -> None:
        """A line for a start that takes long."""
        if self._log is None:
            note(f"{what} ({seconds:.0f} s)")
        else:
            self._log.info(what, seconds=round(seconds))

    def ready(self, processes: dict[int, int]) -> None:
        """The addresses, and what can be done next."""
        places = self._folder.places
        bootstrap = ",".join(reachable(place.kafka) for place in places)
        if self._as_json:
            nodes = [
                {
                    "id": place.id,
                    "pid": processes.get(place.id),
                    "kafka": place.kafka,
                    "peer": place.peer,
                    "http": place.http,
                    "data": place.data,
                }
                for place in places
            ]
            folder = str(self._folder.path)
            print_json({"bootstrap": bootstrap, "nats": self._nats(), "folder": folder, "nodes": nodes})
            sys.stdout.flush()
            return
        typer.echo(f"Logboom is ready: {plural(len(places), 'node')}.")
        for place in places:
            metrics = f"http://{place.http}/metrics" if place.http else "none"
            typer.echo(f"  node {place.id}  Kafka  {place.kafka}  HTTP  {metrics}  process {processes.get(place.id)}")
        typer.echo(f"  clients   {bootstrap}")
        if (nats := self._nats()) is not None:
            typer.echo(f"  NATS      {nats}")
        typer.echo(f"  data      {self._folder.path}")
        typer.echo(f"  stop      Ctrl-C, or `logboom cluster down{data_option(self._folder)}` in another terminal")
        for line in [f"export LOGBOOM_BOOTSTRAP={bootstrap}", *self._tries]:
            typer.echo(f"  try       {line}")
        sys.stdout.flush()

    def stopping(self, why: str) -> None:
        """A stop may take seconds."""
        if self._log is None:
            note(f"stopping all nodes ({why})")
        else:
            self._log.info("stopping all nodes", why=why)

    def _name(self, node_id: int) -> str:
        name = f"node {node_id}"
        return typer.style(name, fg=_COLOURS[node_id % len(_COLOURS)]) if self._colours else name
