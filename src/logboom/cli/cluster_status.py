"""`logboom cluster status`: the brokers of a cluster, and what is not as it should be.

Knows how a cluster is shown; `cluster_view` asks for it.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from logboom.app.supervisor.folder import FOLDER_DEFAULT, LIST_NAME, read_list
from logboom.cli.cluster_view import Cluster, NodeView, look
from logboom.cli.common import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    CommandError,
    fail,
    human_bytes,
    plural,
    print_json,
    table_lines,
)

_WATCH_EVERY_S: Final = 1.0
_TROUBLES_SHOWN: Final = 20
_LAGS_SHOWN: Final = 10
_BAD: Final = ("fenced", "no leader", "below minimum", "killed", "down", "paused", "no controller", "does not answer")
_DOUBTFUL: Final = ("not all in sync", "starting", "stopping")

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help=f"The folder of a cluster on this machine. (default: {FOLDER_DEFAULT}, if it is there)",
    ),
]
ClusterBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="LOGBOOM_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT",
        help=f"Brokers to ask, with commas between them. (default: those of the folder, else {BOOTSTRAP_DEFAULT})",
    ),
]
Processes = dict[int, dict[str, Any]]
"""The nodes of a folder by id, as its list has them; none where the cluster is not of a folder."""


def status(
    bootstrap: ClusterBootstrap = None,
    data: Data = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the brokers, which of them leads, and the partitions that are not as they should be.

    It works while brokers are down, and says which do not answer. --watch --json prints a line for each look.
    """
    while watch and as_json:
        print_json(as_json_of(*_looked(bootstrap, data)))
        time.sleep(_WATCH_EVERY_S)
    if as_json:
        print_json(as_json_of(*_looked(bootstrap, data)))
    elif not watch:
        Console().print(_styled(lines(*_looked(bootstrap, data))), soft_wrap=True)
    else:
        _watch(bootstrap, data)


def _watch(bootstrap: str | None, data: Path | None) -> None:
    console = Console()
    if not console.is_terminal:
        while True:  # one look below the other, for a file or the next program of a pipe
            console.print(_look_or_reason(bootstrap, data), soft_wrap=True, end="\n\n")
            time.sleep(_WATCH_EVERY_S)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_look_or_reason(bootstrap, data), refresh=True)
            time.sleep(_WATCH_EVERY_S)


def _look_or_reason(bootstrap: str | None, data: Path | None) -> Text:
    """What is to be seen, or why nothing is."""
    try:
        return _styled(lines(*_looked(bootstrap, data)))
    except CommandError as error:
        return Text(str(error), style="red")


def folder_of(bootstrap: str | None, data: Path | None) -> Path | None:
    """The folder that is meant: the one that the user names, else, where no broker is named, the usual one if it is
    there."""
    if data is None and bootstrap is None and (FOLDER_DEFAULT / LIST_NAME).exists():
        return FOLDER_DEFAULT
    return data


def addresses(bootstrap: str | None, data: Path | None) -> list[str]:
    """Whom to ask: the nodes of the folder that is meant, else those that the user names, else the usual address."""
    folder = folder_of(bootstrap, data)
    if folder is not None:
        return [node["kafka"] for node in read_list(folder)["nodes"]]
    return [each.strip() for each in (bootstrap or BOOTSTRAP_DEFAULT).split(",")]


def _looked(bootstrap: str | None, data: Path | None) -> tuple[Cluster, Processes]:
    try:
        cluster, errors = look(addresses(bootstrap, data))
    except ValueError as error:  # an address that is none
        fail(f"--bootstrap: {error}")
    if cluster is None:
        reasons = "; ".join(f"{address}: {reason}" for address, reason in errors.items())
        fail(f"no broker answers ({reasons}): `logboom cluster up` starts a cluster, --bootstrap names another")
    folder = folder_of(bootstrap, data)
    listed = [] if folder is None else read_list(folder)["nodes"]
    return cluster, {node["id"]: node for node in listed}


# --- for programs -----------------------------------------------------------------------------------------------------


def as_json_of(cluster: Cluster, processes: Processes) -> dict[str, Any]:
    """The JSON of a cluster; docs/operations.md says what its fields mean."""
    return {
        "cluster": cluster.id,
        "controller": cluster.controller,
        "metadata_end": cluster.metadata_end,
        "metadata_level": cluster.metadata_level,
        "nodes": [_node_as_json(node, processes.get(node.id)) for _, node in sorted(cluster.nodes.items())],
        "streams": cluster.streams,
        "partitions": cluster.partitions,
        "at_preferred": cluster.at_preferred,
        "troubles": [{**asdict(each), "what": each.what} for each in cluster.troubles],
        "observers": [
            {
                "stream": stream,
                "partition": partition,
                "node": node,
                "records": cluster.lags.get((stream, partition, node), 0),
            }
            for (stream, partition), nodes in sorted(cluster.observers.items())
            for node in nodes
        ],
        "lags": [
            {"stream": stream, "partition": partition, "node": node, "records": records}
            for (stream, partition, node), records in sorted(cluster.lags.items())
        ],
    }


def _node_as_json(node: NodeView, process: dict[str, Any] | None) -> dict[str, Any]:
    own = None if process is None else {"pid": process["pid"], "state": process["state"], "data": process["data"]}
    return {**asdict(node), "process": own}


# --- for people -------------------------------------------------------------------------------------------------------


def lines(cluster: Cluster, processes: Processes) -> list[str]:
    """The same in words."""
    leader = "no controller" if cluster.controller is None else f"controller {cluster.controller}"
    counts = f"{plural(cluster.streams, 'stream')}, {plural(cluster.partitions, 'partition')}"
    level = "" if cluster.metadata_level is None else f"  metadata level {cluster.metadata_level}"
    shown = [f"cluster {cluster.id}  {plural(len(cluster.nodes), 'node')}  {leader}  {counts}{level}", ""]
    shown += _node_lines(cluster, processes)
    if levels := _level_line(cluster):
        shown += ["", levels]
    shown += ["", *_trouble_lines(cluster)]
    if away := cluster.partitions - cluster.at_preferred:
        shown.append(f"{plural(away, 'partition')} not led by the preferred node, the first of its replicas")
    if cluster.observers:
        shown.append(_observers_line(cluster))
    if cluster.lags:
        shown += ["", *_lag_lines(cluster)]
    return shown


def _level_line(cluster: Cluster) -> str | None:
    """What is left to do of an update; None where nothing is."""
    running: dict[str, list[int]] = {}
    for node in cluster.nodes.values():
        if node.levels is not None:
            running.setdefault(node.software or "of an older version", []).append(node.id)
    newest = min((node.levels[1] for node in cluster.nodes.values() if node.levels is not None), default=0)
    if len(running) > 1:
        versions = [f"Logboom {version} on {_ids(sorted(nodes))}" for version, nodes in sorted(running.items())]
        return f"brokers of several versions: {'; '.join(versions)}"
    if cluster.metadata_level is not None and newest > cluster.metadata_level:
        return f"every broker that answers speaks metadata level {newest}: `logboom cluster upgrade` ends the update"
    return None


def _node_lines(cluster: Cluster, processes: Processes) -> list[str]:
    observed = bool(cluster.observers) or any(node.is_observer for node in cluster.nodes.values())
    ranks = any(node.rack is not None for node in cluster.nodes.values())
    rows: list[list[object]] = []
    for _, node in sorted(cluster.nodes.items()):
        size = None if node.size_bytes is None else human_bytes(node.size_bytes)
        rack = [node.rack] if ranks else []
        counts = [node.leads, node.preferred, node.replicas, *([node.observers] if observed else [])]
        state = _state(node, processes.get(node.id))
        rows.append([node.id, node.kafka, *rack, state, _role(cluster, node), node.lag, size, *counts])
    headers = [
        "node",
        "kafka",
        *(["rack"] if ranks else []),
        "state",
        "metadata",
        "lag",
        "size",
        "leads",
        "preferred",
        "replicas",
        *(["observers"] if observed else []),
    ]
    return table_lines(headers, rows)


def _state(node: NodeView, process: dict[str, Any] | None) -> str:
    """Whether it serves, as the controller sees it; then what is known of its process."""
    words = ["up" if node.fenced is False else "fenced" if node.fenced else "unknown"]
    if node.is_observer:
        words.append("only observes")
    if process is not None and process["state"] != "up":
        words.append(str(process["state"]))
    elif node.error is not None:
        words.append(node.error)
    return ", ".join(words)


def _role(cluster: Cluster, node: NodeView) -> str | None:
    if node.id == cluster.controller:
        return "controller"
    behind = f", {node.behind:,} behind" if node.behind else ""
    return None if node.role is None else f"{node.role}{behind}"


def _trouble_lines(cluster: Cluster) -> list[str]:
    if not cluster.troubles:
        return ["every partition has a leader, and all its replicas are in sync"]
    kinds = [each.what for each in cluster.troubles]
    counted = [f"{kinds.count(kind):,} {kind}" for kind in ("no leader", "below minimum", "not all in sync")]
    rows = [
        [
            f"{each.stream}:{each.partition}",
            "none" if each.leader is None else each.leader,
            _ids(each.replicas),
            _ids(each.in_sync),
            each.minimum,
            each.what,
        ]
        for each in cluster.troubles[:_TROUBLES_SHOWN]
    ]
    shown = table_lines(("partition", "leader", "replicas", "in sync", "minimum", ""), rows)
    more = len(cluster.troubles) - len(rows)
    words = ", ".join(words for words in counted if not words.startswith("0 "))
    return [f"partitions: {words}", *shown, *([f"and {more:,} more; --json has them all"] if more else [])]


def _observers_line(cluster: Cluster) -> str:
    """How far the observers are behind, all together; the worst of them are among the lags."""
    count = sum(map(len, cluster.observers.values()))
    behind = [
        cluster.lags[stream, partition, node]
        for (stream, partition), nodes in cluster.observers.items()
        for node in nodes
        if (stream, partition, node) in cluster.lags
    ]
    words = f"{plural(count, 'observer')} of {plural(len(cluster.observers), 'partition')}"
    return (
        f"{words}, {len(behind):,} of them behind, by {max(behind):,} records at most"
        if behind
        else f"{words}, none behind"
    )


def _lag_lines(cluster: Cluster) -> list[str]:
    worst = sorted(cluster.lags.items(), key=lambda item: -item[1])
    rows = [
        [
            f"{stream}:{partition}",
            "observer" if node in cluster.observers.get((stream, partition), ()) else "replica",
            node,
            f"{lag}",
        ]
        for (stream, partition, node), lag in worst[:_LAGS_SHOWN]
    ]
    more = len(worst) - len(rows)
    shown = table_lines(("copy of", "is", "node", "records behind"), rows)
    return [*shown, *([f"and {more:,} more; --json has them all"] if more else [])]


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def _styled(shown: list[str]) -> Text:
    text = Text("\n".join(shown), no_wrap=True)
    text.highlight_regex(r"(?m)^(NODE|PARTITION|COPY OF) .*$", "bold")
    text.highlight_words(_BAD, "red")
    text.highlight_words(_DOUBTFUL, "yellow")
    return text
