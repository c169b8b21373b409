"""Publishing: appends for front ends whose publishers send messages, not batches, and cannot be made to wait.

Such a front end hands over what came together for one partition. Back pressure, quotas and the rule that clients do not
write to internal streams are the same for every front end; here they refuse, where the Kafka server has its client
wait. Knows no protocol; which partition a message belongs to is the front end's matter. On the loop.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from logboom.base.errors import LogboomError, OverloadedError
from logboom.broker.partition.publications import NO_TERMS, PublishDone, Published, Terms
from logboom.broker.partition.replica import Partition
from logboom.broker.quotas.clients import ClientQuotaManager
from logboom.metadata import check_client_may_write
from logboom.records import contents_bytes


class Staging(Protocol):
    """Whether the disk keeps up."""

    @property
    def backpressured(self) -> bool: ...


class Publishing:
    """See the module. Life: the broker's."""

    def __init__(self, quotas: ClientQuotaManager, staging: Staging) -> None:
        self._quotas = quotas
        self._staging = staging

    @property
    def is_backpressured(self) -> bool:
        """Whether so much waits for the disk that everything is refused: a front end that can read later should do
        so."""
        return self._staging.backpressured

    def publish(
        self,
        partition: Partition,
        contents: Sequence[bytes],
        terms: Mapping[int, Terms] = NO_TERMS,
        *,
        acks: int,
        client_id: str,
        done: PublishDone,
    ) -> None:
        """Append messages as `Publications.append` does, at the cost of a client's quota of produced bytes.

        `done` is always called once; before this returns where all of them are refused at once: OverloadedError,
        InvalidStreamNameError for an internal stream. NotLeaderError and what a single message is refused for come
        with the outcomes later.
        """
        try:
            check_client_may_write(partition.stream)
            self._check_load(contents_bytes(contents), client_id)
        except LogboomError as error:
            done(Published([error.with_traceback(None)] * len(contents), frozenset()))
            return
        partition.publications.append(contents, terms, acks=acks, done=done)

    def _check_load(self, size_bytes: int, client_id: str) -> None:
        """Raises OverloadedError."""
        if self._staging.backpressured:
            raise OverloadedError("more data waits for the disk than allowed", limit="broker.max_staged_bytes")
        quotas = self._quotas.of(client_id)
        throttle_ms = 0 if quotas is None else quotas.charge_published(size_bytes)
        if throttle_ms:
            raise OverloadedError(
                f"the quota of client {client_id!r} is used up for {throttle_ms} ms", limit="producer_byte_rate"
            )
