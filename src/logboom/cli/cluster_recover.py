"""`logboom cluster recover`: the majority of the voters is lost for good, and one that is left founds the cluster
again.

Works on the data directory of a broker that is stopped; no broker is asked, since none could answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.control.nodes import node_id_of
from logboom.broker.disk.data_dir import DataDir, identity_of
from logboom.broker.raft.migration import GROUP_FORMAT
from logboom.broker.raft.quorum_recovery import Copy, found_group, read_copy, recovered, rejoin
from logboom.broker.runtime import Runtime
from logboom.cli.common import AsJson, fail, note, plural, print_json
from logboom.host import OsDisk, ReadOnlyDisk
from logboom.metadata import Image
from logboom.storage import Damage, Notice, format_of

_SHOWN: Final = 10

Folder = Annotated[
    Path, typer.Option("--data", metavar="DIR", show_default=False, help="The data directory of a stopped broker.")
]


def recover(
    data: Folder,
    lost: Annotated[
        str, typer.Option(metavar="NODE,NODE...", help="Brokers that are gone for good with their disks, such as 2,3.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force-new-cluster", help="Make the change: without this option nothing is changed.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--rejoin", help="For every other remaining broker: let it join the new cluster.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Found the cluster again from one broker, after the majority of its voters is lost with their disks.

    Take the one that knows most: the highest "entries" that this shows without --force-new-cluster. Changes of
    metadata that were made with the others and never reached it are lost. Records are not touched.

    The brokers that are left otherwise belong to the cluster from before, which refuses them: run this with --rejoin on
    each, then start it with --join. Brokers with new disks just join.
    """
    with _opened(data) as (data_dir, disk):
        if again:
            if not force:
                note("This broker would forget its copy of the metadata, and keep the records of all streams.")
                fail("nothing was changed: add --force-new-cluster")
            rejoin(data_dir, disk)
            words = f"node {data_dir.identity.broker_id} belongs to no cluster now: start it with --join HOST:PORT"
            _say(as_json, {"node": data_dir.identity.broker_id, "rejoins": True}, words)
            return
        copy = read_copy(disk, _report)
        gone = _brokers(lost)
        summary = _summary(data_dir, copy, gone)
        if not force:
            _show(summary, as_json)
            fail(
                "nothing was changed. If the majority of the voters is lost for good, and no other broker has more "
                "entries, add --force-new-cluster"
            )
        identity = data_dir.identity
        found_group(data_dir, disk, node_id_of(identity.broker_id, identity.directory_id), copy, gone)
        _show(summary, as_json)
        if not as_json:
            typer.echo(f"node {identity.broker_id} is the only voter of the cluster now: start it")


@contextmanager
def _opened(data: Path) -> Iterator[tuple[DataDir, OsDisk]]:
    """The directory, locked; every error that its files can have ends the command."""
    try:
        identity = identity_of(ReadOnlyDisk(data))
        disk = OsDisk(str(data))
        data_dir = DataDir.open(data, disk, broker_id=identity.broker_id, cluster_id=None, ids=Runtime().ids)
    except (LogboomError, OSError) as error:
        fail(f"{data} cannot be used: {error}")
    try:
        if format_of(disk) < GROUP_FORMAT:
            fail(f"{data} belongs to a broker that has always run alone: start it")
        yield data_dir, disk
    except (LogboomError, OSError) as error:
        fail(str(error))
    finally:
        data_dir.close()


def _report(found: Damage | Notice) -> None:
    note(str(found))


def _brokers(text: str) -> list[BrokerId]:
    try:
        return [BrokerId(int(one)) for one in text.split(",") if one.strip()]
    except ValueError:
        fail(f"--lost {text}: write it as the ids of brokers, such as 2,3")


def _summary(data_dir: DataDir, copy: Copy, lost: list[BrokerId]) -> dict[str, object]:
    own = data_dir.identity.broker_id
    known = [broker for broker in lost if broker in copy.image.brokers and broker != own]
    after = recovered(copy.image, known)
    here, elsewhere, nowhere = _held(after, own)
    return {
        "node": own,
        "cluster": data_dir.identity.cluster_id,
        "generation": data_dir.identity.generation,
        "entries": copy.last,
        "term": copy.term,
        "not_known_to_be_committed": copy.unsure,
        "others": sorted(broker for broker in after.brokers if broker != own),
        "partitions_here": len(here),
        "partitions_elsewhere": len(elsewhere),
        "partitions_nowhere": nowhere,
    }


def _held(image: Image, own: BrokerId) -> tuple[list[str], list[str], list[str]]:
    """Partitions that this broker leads, those for which others have to be back, and those that nobody can lead."""
    here, elsewhere, nowhere = list[str](), list[str](), list[str]()
    for stream in image:
        for index, one in enumerate(stream.assignments):
            left = image.brokers.keys() & one.relied_on
            where = here if left == {own} else elsewhere if left else nowhere
            where.append(f"{stream.name}:{index}")
    return here, elsewhere, nowhere


def _show(summary: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    others, nowhere = summary["others"], summary["partitions_nowhere"]
    assert isinstance(others, list)
    assert isinstance(nowhere, list)
    typer.echo(f"node {summary['node']} of cluster {summary['cluster']}, generation {summary['generation']}")
    typer.echo(
        f"entries {summary['entries']}, term {summary['term']}; the last {summary['not_known_to_be_committed']} may "
        "not be committed, and count as committed"
    )
    typer.echo(f"other brokers that are not lost: {', '.join(map(str, others)) or 'none'}")
    typer.echo(
        f"partitions: {summary['partitions_here']} can be led here, {summary['partitions_elsewhere']} once the other "
        f"brokers with a replica are back, {len(nowhere)} have lost every replica that had all records"
    )
    if nowhere:
        rest = f" and {plural(len(nowhere) - _SHOWN, 'other')}" if len(nowhere) > _SHOWN else ""
        typer.echo(
            "let the longest log lead these, with logboom cluster elect STREAM PARTITION --unclean: "
            f"{', '.join(nowhere[:_SHOWN])}{rest}"
        )


def _say(as_json: bool, summary: dict[str, object], words: str) -> None:
    if as_json:
        print_json(summary)
    else:
        typer.echo(words)


def register(app: typer.Typer) -> None:
    """Add the command to those of `logboom cluster`."""
    app.command("recover")(recover)
