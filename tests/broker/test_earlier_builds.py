"""A cluster that is updated one broker after the other: fetches as an earlier build sends them, between brokers of this
one.

Fields that came later are cut off on the way, so that the leader and its follower are as of before fetches stood.
"""

from collections.abc import Sequence
from struct import Struct

import msgspec
from tests.broker.node import append_soon, batch
from tests.broker.replicated import Cluster, bytes_of, on_brokers, until

from logboom.base.ids import BrokerId
from logboom.base.ports import Bytes
from logboom.broker.peers import FrameKind, PeerIdentity, SendPart

_LENGTH = Struct(">I")
_REQUEST_FIELDS = 9
_ANSWER_ITEM_FIELDS = 8


def request_of_before(body: memoryview) -> bytes:
    """Without the word that it takes parts."""
    return msgspec.msgpack.encode(msgspec.msgpack.decode(body)[:_REQUEST_FIELDS])


def answer_of_before(body: bytes) -> bytes:
    """Without where a fetch was, and whether it stands."""
    (length,) = _LENGTH.unpack_from(body)
    items, *rest = msgspec.msgpack.decode(body[_LENGTH.size : _LENGTH.size + length])
    header = msgspec.msgpack.encode([[item[:_ANSWER_ITEM_FIELDS] for item in items], *rest])
    return _LENGTH.pack(len(header)) + header + body[_LENGTH.size + length :]


class Builds:
    """What passes between broker 1, which leads, and its follower, as one of both is of an earlier build or none."""

    def __init__(self, cluster: Cluster) -> None:
        self.differ = True
        self.parts = 0
        leader = cluster.network.members[BrokerId(1)]
        self._serve = leader.handler(FrameKind.FETCH)
        leader.serve_in_parts(FrameKind.FETCH, self._tapped)

    async def _tapped(self, follower: PeerIdentity, body: memoryview, send_part: SendPart) -> Sequence[Bytes]:
        def counted(part: Sequence[Bytes]) -> None:
            self.parts += 1
            send_part(part)

        if not self.differ:
            return await self._serve(follower, body, counted)
        answer = b"".join(await self._serve(follower, memoryview(request_of_before(body)), _no_parts))
        return [answer_of_before(answer)]


def _no_parts(part: Sequence[Bytes]) -> None:
    raise AssertionError("an earlier build takes no parts")


@on_brokers(2, minimum=1)
async def test_brokers_of_an_earlier_build_replicate_with_those_of_this_one(cluster: Cluster) -> None:
    """Fetches stand once both are of this one, and no more once one went back."""
    builds = Builds(cluster)
    await cluster.create("orders", [1, 2])
    values = (b"%d" % number * 1_000 for number in range(60))

    async def parts() -> int:
        """How many brought some records."""
        before = builds.parts
        await cluster.in_sync("orders")
        leader, copy = cluster.leader("orders"), cluster.partition(2, "orders")
        for _ in range(3):
            for ack in [append_soon(leader, batch(next(values))) for _ in range(3)]:
                await ack
        await until(lambda: copy.reads.high_watermark == leader.log_end_offset, "it knows what is committed")
        assert bytes_of(copy.log) == bytes_of(leader.log)
        return builds.parts - before

    found = [await parts()]
    for differ in (False, True):
        await cluster.stop(2)
        builds.differ = differ
        await cluster.start(2)
        found.append(await parts())
    assert [bool(count) for count in found] == [False, True, False]
