"""Checks a sink's connection once, for `pipeline check --connect`. Must only know targets."""

from logboom.base.errors import LogboomError
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import SinkContext
from logboom.pipeline.sinks.bulk.model import BulkSink
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.bulk.writer import secrets_of


def try_target(sink: BulkSink, context: SinkContext) -> None:
    """Check that the server answers and accepts the credential.

    :raises PipelineError: with the reason why it does not.
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
