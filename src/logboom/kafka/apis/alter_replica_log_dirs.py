"""AlterReplicaLogDirs (KIP-113): move replicas between the log dirs of this broker, of which there is one.

A replica that is to move to the log dir that it is in stays there, without an error; any other log dir is not found. A
partition that a request names several times has the result of the last one, as in Kafka.
"""

from typing import Any, Final

from logboom.base.errors import LogboomError, NotLeaderError
from logboom.broker.broker import Broker
from logboom.kafka.errors import LogDirNotFoundError, ReplicaNotAvailableError, error_code
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class

_API_KEY: Final = 34


def handle(context: RequestContext, request: Any) -> Reply:
    """The result of each partition."""
    wanted: dict[str, dict[int, str]] = {}
    for one in request.dirs:
        for topic in one.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, one.path))
    cls = response_class(_API_KEY, context.api_version)
    topic_cls, partition_cls = nested(cls, "results"), nested(cls, "results", "partitions")
    results = tuple(
        make(
            topic_cls,
            topic_name=name,
            partitions=tuple(
                make(
                    partition_cls,
                    partition_index=index,
                    error_code=error_code(_refusal(context.broker, name, index, path)),
                )
                for index, path in partitions.items()
            ),
        )
        for name, partitions in wanted.items()
    )
    return make(cls, throttle_time=milliseconds(0), results=results)


def _refusal(broker: Broker, name: str, index: int, path: str) -> LogboomError | None:
    """Why a replica cannot be in the log dir `path`; None if it is there. The order of the checks is Kafka's."""
    if path != broker.health.log_dir_path:
        return LogDirNotFoundError(f"this broker has no log dir {path!r}")
    failure = broker.health.log_dir_failure
    if failure is not None:
        return failure
    try:
        broker.replicas.find(name, index)
    except NotLeaderError:
        return ReplicaNotAvailableError(f"this broker holds no replica of {name}-{index}")
    except LogboomError as error:
        return error
    return None


HANDLER = Handler(api_key=_API_KEY, min_version=1, max_version=2, handle=handle)
