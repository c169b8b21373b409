"""Tries a sink once, for `pipeline check --connect`. Knows only targets."""

from logboom.base.errors import LogboomError
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import SinkContext
from logboom.pipeline.sinks.bulk.model import BulkSink
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.bulk.writer import secrets_of


def try_target(sink: BulkSink, context: SinkContext) -> None:
    """Whether the server is there and takes the credential.

    :raises PipelineError: what is wrong.
    """
    secrets = secrets_of(sink, context)
    try:
        target = sink.open_target(secrets)
        try:
            target.probe()
        finally:
            target.close()
    except LogboomError as error:
        raise PipelineError(without_secrets(str(error), secrets.values())) from None
