"""The metadata as this broker knows them: the image in force, made of the committed entries of the cluster's log.

    commit(records)  ->  prepare(delta)  ->  propose to the consensus group  ->  committed by a majority
    apply(entry)     ->  the image is replaced  ->  follow(delta)            on every broker, in the same order

`commit` is for the controller alone, one call at a time (`control`). `prepare` makes what this broker itself needs for
the change durable before it is proposed, so that a full disk is an error of the command; a broker that did not command
the change makes what it lacks when it follows. Nothing is visible before it is committed.

It is the state machine of the group (`raft.ports.StateMachine`). What follows the image is attached once the partitions
are open; the deltas from before are followed then, in order.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

from logboom.base.errors import LogboomError, OutcomeUnknownError
from logboom.base.ids import PartitionIndex, StreamId
from logboom.broker.metrics import Counters
from logboom.broker.raft.ports import Leadership
from logboom.metadata import Image, ImageDelta, MetadataRecord, decode_all, delta_of, encode_all
from logboom.metadata.revisions import ModRevisions
from logboom.raft import Index

_NOTHING: Final = Index(0)


class MetadataFollower(Protocol):
    """The state of a broker that follows the image. Called one at a time."""

    async def prepare(self, delta: ImageDelta) -> None:
        """Make durable what has to exist before the records are committed. On an error nothing of it is left."""

    async def abandon(self, delta: ImageDelta) -> None:
        """The records were not committed: undo `prepare`."""

    async def apply(self, delta: ImageDelta, index: int) -> None:
        """The records of the entry `index` are committed and the image is replaced: follow. What front ends see changes
        before it waits."""


class MetadataState:
    """See the module. On the loop."""

    def __init__(self, counters: Counters, leadership_changed: Callable[[Leadership], None]) -> None:
        self._counters = counters
        self._leadership_changed = leadership_changed
        self._image = Image()
        self.revisions = ModRevisions()
        """The entry that last changed each object of the image."""
        self._applied = _NOTHING
        self._follower: MetadataFollower | None = None
        self._unfollowed: deque[tuple[ImageDelta, Index]] = deque()
        self._grown: list[tuple[Index, StreamId, Sequence[int]]] = []
        """Partitions created by each entry that was applied before there was a follower."""
        self._propose: Callable[[bytes], Awaitable[Index]] | None = None
        self._watchers: list[Callable[[ImageDelta], None]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._following = asyncio.Lock()

    def attach(self, propose: Callable[[bytes], Awaitable[Index]]) -> None:
        """Set how an entry is proposed to the group, before the first commit."""
        self._propose = propose

    def begin(self) -> Image:
        """The image from which a follower begins; entries committed from now on are kept for `begin_following`."""
        self._unfollowed.clear()
        return self._image

    async def begin_following(self, follower: MetadataFollower) -> None:
        """`follower` has followed up to the image of `begin`: it gets what was committed since, and what is committed
        from now on."""
        while self._unfollowed:
            await follower.apply(*self._unfollowed.popleft())
        self._follower = follower
        self._grown.clear()

    def grown_after(self, index: int) -> Collection[tuple[StreamId, PartitionIndex]]:
        """The partitions that entries after `index` created, as far as this start has applied them one by one: a
        snapshot does not say when its partitions were created."""
        return {
            (stream, PartitionIndex(number)) for at, stream, numbers in self._grown if at > index for number in numbers
        }

    @property
    def image(self) -> Image:
        """The image in force. It never changes; ask again for a later one."""
        return self._image

    @property
    def applied_index(self) -> int:
        """The last entry of the log that is in the image."""
        return self._applied

    def watch(self, callback: Callable[[ImageDelta], None]) -> None:
        """Call `callback` on the loop with every change of the image, once it is in force."""
        self._watchers.append(callback)

    async def changed(self) -> None:
        """Return when the next entry is in the image."""
        await self.applied(self._applied + 1)

    async def applied(self, index: int) -> None:
        """Return once the entry of an index is in the image."""
        if index > self._applied:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((index, future))
            await future

    async def commit(self, records: Sequence[MetadataRecord]) -> None:
        """`control.context.MetadataWriter`."""
        assert self._propose is not None
        delta = delta_of(self._image, records)
        follower = self._follower
        if follower is not None:
            # Directories first: at the next start a missing one can then only mean lost data, and a full disk is an
            # error of this command with nothing created. What a crash leaves is removed by the next start.
            async with self._following:
                await follower.prepare(delta)
        try:
            await self._propose(encode_all(records))
        except OutcomeUnknownError:
            raise  # what was prepared is taken or removed with the next change that is followed, or at the next start
        except BaseException:  # a cancelled caller too: what was prepared would be in the way of the next change
            if follower is not None:
                async with self._following:  # another controller's changes may be followed meanwhile
                    await follower.abandon(delta)
            raise

    # --- the state machine of the group ----------------------------------------------------------------------------

    async def apply(self, index: Index, data: bytes) -> None:
        """`raft.ports.StateMachine`."""
        records = decode_all(data)
        delta = delta_of(self._image, records)
        self.revisions.note(index, records)
        if self._follower is None:
            self._grown += ((index, stream.id, numbers) for stream, numbers in delta.grown)
        await self._follow(index, delta)

    async def restore(self, index: Index, data: bytes) -> None:
        """`raft.ports.StateMachine`."""
        delta = delta_of(self._image, decode_all(data))
        self.revisions.restored(index)
        await self._follow(index, delta)

    def snapshot(self) -> bytes:
        """`raft.ports.StateMachine`."""
        return encode_all(self._image.snapshot())

    def leadership_changed(self, leadership: Leadership) -> None:
        """`raft.ports.StateMachine`."""
        self._leadership_changed(leadership)

    async def _follow(self, index: Index, delta: ImageDelta) -> None:
        self._counters.metadata_commits += 1
        # The image is replaced before anything waits, so that no reader sees a state between two images.
        self._image = delta.after
        if self._follower is None:
            self._unfollowed.append((delta, index))
        else:
            async with self._following:
                await self._follower.apply(delta, index)
        self._applied = index
        for callback in self._watchers:
            callback(delta)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for index, future in waiting:
            if index > self._applied:
                self._waiting.append((index, future))
            elif not future.done():
                future.set_result(None)

    def end(self, error: LogboomError) -> None:
        """Apply nothing more; all waiting callers get `error`."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
