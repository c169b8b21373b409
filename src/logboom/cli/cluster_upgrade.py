"""`logboom cluster upgrade`: the last step of an update, once every broker runs the new program."""

from typing import Annotated, Final

import typer
from kio.schema.errors import ErrorCode

from logboom.cli.asking import AdminConnection, check
from logboom.cli.cluster_status import ClusterBootstrap, Data, addresses
from logboom.cli.cluster_view import from_all, look
from logboom.cli.common import AsJson, fail, print_json
from logboom.kafka.wire.messages import make, milliseconds, nested, request_class
from logboom.metadata.levels import FEATURE

_UPDATE_FEATURES: Final = 57
_VERSION: Final = 1
_TIMEOUT_MS: Final = 30_000
_UPGRADE: Final = 1


def upgrade(
    level: Annotated[
        int | None,
        typer.Option("--level", min=1, metavar="N", help="The level. (default: the newest that all brokers speak)"),
    ] = None,
    bootstrap: ClusterBootstrap = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Raise the metadata level, so that brokers write what the new program can read and the one before could not.

    Refused while a broker runs a program that does not speak the level, or is down. From then on such a program is not
    let in any more.
    """
    asked = addresses(bootstrap, data)
    cluster, errors = look(asked)
    if cluster is None:
        fail(f"no broker answers ({'; '.join(errors.values())})")
    before = cluster.metadata_level
    newest = [node.levels[1] for node in cluster.nodes.values() if node.levels is not None]
    if before is None or not newest:
        fail("these brokers know no metadata level")
    if level is None and len(newest) < len(cluster.nodes):
        silent = [node.id for node in cluster.nodes.values() if node.levels is None]
        fail(f"which levels these brokers speak is not known: {', '.join(map(str, silent))} (`logboom cluster status`)")
    wanted = level or max(before, min(newest))
    if wanted != before:
        _set_level(asked, wanted)
    if as_json:
        print_json({"before": before, "level": wanted})
    else:
        typer.echo(f"the metadata level is {wanted}" + (f", and was {before}" if wanted != before else " already"))


def _set_level(asked: list[str], level: int) -> None:
    def ask(link: AdminConnection) -> tuple[ErrorCode, str | None]:
        cls = request_class(_UPDATE_FEATURES, _VERSION)
        update = make(nested(cls, "feature_updates"), feature=FEATURE, max_version_level=level, upgrade_type=_UPGRADE)
        request = make(cls, feature_updates=(update,), validate_only=False, timeout=milliseconds(_TIMEOUT_MS))
        reply = link.ask(_UPDATE_FEATURES, _VERSION, request)
        # A broker of an older program answers for each feature.
        outcome = reply if reply.error_code is not ErrorCode.none or not reply.results else reply.results[0]
        return outcome.error_code, outcome.error_message

    reasons: dict[str, str] = {}
    for address in asked:
        answers, silent = from_all([address], ask)
        reasons |= silent
        for code, message in answers.values():
            check(code, message, f"the metadata level is not set to {level}")
            return
    fail(f"no broker answers ({'; '.join(reasons.values())})")
