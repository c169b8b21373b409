"""ListTransactions (KIP-664): there are none, as no broker coordinates transactions.

Kafka's tools ask every broker for them, also to find hanging ones.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Handler, Reply
from logboom.kafka.wire.messages import make, milliseconds, response_class

_API_KEY: Final = 66
_STATES: Final = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    )
)
"""The names of Kafka's TransactionState."""


def handle(context: RequestContext, request: Any) -> Reply:
    """No transactions; states that are asked for and do not exist are named."""
    unknown = tuple(dict.fromkeys(state for state in request.state_filters if state not in _STATES))
    return make(
        response_class(_API_KEY, context.api_version),
        throttle_time=milliseconds(0),
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=(),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=2, handle=handle)
