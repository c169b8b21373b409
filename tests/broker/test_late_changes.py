"""Changes of settings, quotas, replicas and brokers that come to the controller late, or a second time: within one
controllership too."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from tests.broker.replicated import DIRECTOR, Cluster, on_brokers, refusal_of, until

from logboom.base.errors import (
    ConcurrentChangeError,
    InvalidRequestError,
    LogboomError,
    NotControllerError,
    OutcomeUnknownError,
)
from logboom.base.ids import BrokerId, StreamName
from logboom.base.ports import Bytes
from logboom.broker.broker import Broker
from logboom.broker.control import commands
from logboom.broker.control.commands import ChangeStreamConfig, ConditionalCommand, Request
from logboom.broker.peers import FrameKind, PeerIdentity, PeerUnavailableError, SendPart
from logboom.metadata import quota_entity

HOUR, WEEK = {"retention.ms": "3600000"}, {"retention.ms": "604800000"}
OTHER = 1
"""The broker that sends commands; the director executes them."""
_CLIENT = quota_entity([("client-id", "c")])


class ToTheController:
    """What broker 1 sends the controller: kept, and lost on its way or back as a test wants it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.requests: list[Request] = []
        self.lost = self.answers_lost = 0
        """How many of the next ones never arrive, and of how many more nobody hears the answer."""
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        """What happens behind each loss."""
        self.tap()

    def tap(self) -> None:
        peers = self._cluster.network.members[BrokerId(DIRECTOR)]
        self._serve = peers.handler(FrameKind.CONTROL)
        peers.serve_in_parts(FrameKind.CONTROL, self._tapped)

    async def _tapped(self, sender: PeerIdentity, body: memoryview, send_part: SendPart) -> Sequence[Bytes]:
        request = commands.decode_request(body)
        if not isinstance(request.command, ConditionalCommand):
            return await self._serve(sender, body, send_part)
        self.requests.append(request)
        if self.lost:
            self.lost -= 1
            await self._lose()
        answer = await self._serve(sender, body, send_part)
        if self.answers_lost:
            self.answers_lost -= 1
            await self._lose()
        return answer

    async def _lose(self) -> None:
        if self.meanwhile is not None:
            await self.meanwhile()
        raise PeerUnavailableError("the connection broke")

    async def again(self, request: Request) -> LogboomError | None:
        """Bring a request once more; how it is refused."""
        return await refusal_of(self.deliver(commands.encode(request)))

    async def deliver(self, body: bytes) -> None:
        peers = self._cluster.network.members[BrokerId(OTHER)]
        await peers.call(BrokerId(DIRECTOR), FrameKind.CONTROL, [body], timeout_s=5)


def settings_of(cluster: Cluster, name: str = "orders") -> Mapping[str, str]:
    overrides = dict(cluster.image.by_name[StreamName(name)].overrides)
    overrides.pop("min.insync.replicas", None)
    return overrides


async def settled(cluster: Cluster) -> None:
    """Moves that were asked for are over."""
    await until(lambda: not cluster.assignment("orders").reassigning, "the replicas have moved")


Change = Callable[[Broker], Awaitable[object]]
_CHANGES: dict[str, tuple[Change, Change]] = {
    "settings": (
        lambda broker: broker.catalog.change_stream_config("orders", HOUR),
        lambda broker: broker.catalog.change_stream_config("orders", WEEK),
    ),
    "all settings": (
        lambda broker: broker.catalog.change_stream_config("orders", HOUR, replace_all=True),
        lambda broker: broker.catalog.change_stream_config("orders", {}, replace_all=True),
    ),
    "settings of all brokers": (
        lambda broker: broker.catalog.change_broker_config("", {"log.retention.ms": "3600000"}),
        lambda broker: broker.catalog.change_broker_config("", {"log.retention.ms": None}),
    ),
    "quotas": (
        lambda broker: broker.catalog.change_quotas([(_CLIENT, {"producer_byte_rate": 1.0})]),
        lambda broker: broker.catalog.change_quotas([(_CLIENT, {"producer_byte_rate": None})]),
    ),
    "replicas": (
        lambda broker: broker.cluster_admin.reassign("orders", 0, [2]),
        lambda broker: broker.cluster_admin.reassign("orders", 0, [1]),
    ),
    "draining": (
        lambda broker: broker.cluster_admin.drain_broker(2, draining=True),
        lambda broker: broker.cluster_admin.drain_broker(2, draining=False),
    ),
    "level": (
        lambda broker: broker.cluster_admin.set_metadata_level(2, may_lower=True, validate_only=False),
        lambda broker: broker.cluster_admin.set_metadata_level(3, may_lower=False, validate_only=False),
    ),
}


@pytest.mark.parametrize("what", _CHANGES)
def test_a_change_that_comes_again_does_not_undo_a_later_one(what: str, tmp_path: Any) -> None:
    """Of `retention.ms`, set to an hour by mistake and back to a week, the first would delete records, hours later."""
    first, second = _CHANGES[what]

    async def body(cluster: Cluster) -> None:
        await cluster.create("orders", [1])
        sent = ToTheController(cluster)
        await first(cluster[OTHER])
        (request,) = sent.requests
        await settled(cluster)
        await second(cluster[2])
        await settled(cluster)
        before = cluster.image
        assert isinstance(await sent.again(request), ConcurrentChangeError)
        assert cluster.image == before
        await first(cluster[OTHER])  # asked for anew it is made
        assert cluster.image != before

    on_brokers(2, minimum=1)(body)(tmp_path)


@on_brokers(2, minimum=1)
async def test_a_change_that_comes_for_the_first_time_when_it_was_given_up_is_refused_too(cluster: Cluster) -> None:
    """Whoever asked was told that its outcome is not known, and has set it right by way of another broker."""
    await cluster.create("orders", [1])
    sent = ToTheController(cluster)
    sent.lost = 1_000_000
    assert isinstance(
        await refusal_of(cluster[OTHER].catalog.change_stream_config("orders", HOUR)), OutcomeUnknownError
    )
    sent.lost = 0
    await cluster[2].catalog.change_stream_config("orders", WEEK)
    for request in sent.requests[:3]:
        assert isinstance(await sent.again(request), ConcurrentChangeError)
    assert settings_of(cluster) == WEEK


@on_brokers(1, minimum=1)
async def test_a_change_for_a_stream_spares_the_next_one_of_that_name(cluster: Cluster) -> None:
    await cluster.create("orders", [1])
    sent = ToTheController(cluster)
    catalog = cluster[OTHER].catalog
    await catalog.change_stream_config("orders", HOUR)
    await catalog.create_partitions("orders", 2)
    requests = tuple(sent.requests)
    await catalog.delete_stream("orders")
    await cluster.create("orders", [1])
    for request in requests:
        assert isinstance(await sent.again(request), ConcurrentChangeError)
    assert isinstance(
        await sent.again(msgspec.structs.replace(requests[0], command=commands.DeleteStream(name="orders"))),
        ConcurrentChangeError,
    ), "by a broker that knew none"
    assert settings_of(cluster) == {}
    assert cluster.image.by_name[StreamName("orders")].partitions == 1


@on_brokers(3, minimum=1)
async def test_a_removal_spares_the_next_broker_of_that_id(cluster: Cluster) -> None:
    await cluster.create("orders", [1])
    await cluster.stop(3)
    sent = ToTheController(cluster)
    await cluster[OTHER].cluster_admin.unregister_broker(3)
    (request,) = sent.requests
    cluster.path = cluster.path / "new disks"
    await cluster.start(3)
    await cluster.stop(3)
    assert isinstance(await sent.again(request), ConcurrentChangeError)
    assert BrokerId(3) in cluster.image.brokers


@on_brokers(2, minimum=1)
async def test_an_unclean_election_is_not_held_again(cluster: Cluster) -> None:
    """The next time that nobody may lead, waiting may be better."""
    await cluster.create("orders", [1, 2])
    await cluster.elect("orders", 0, 2)
    sent = ToTheController(cluster)
    await cluster[OTHER].cluster_admin.elect("orders", 0, unclean=False)
    (request,) = sent.requests
    await cluster.elect("orders", 0, 2)
    before = cluster.image
    assert isinstance(await sent.again(request), ConcurrentChangeError)
    assert cluster.image == before


@on_brokers(2, minimum=1)
async def test_a_change_whose_answer_was_lost_is_made_once(cluster: Cluster) -> None:
    await cluster.create("orders", [1])
    sent = ToTheController(cluster)
    sent.answers_lost = 2
    await cluster[OTHER].catalog.change_stream_config("orders", HOUR)
    assert len(sent.requests) == 3
    assert len({one.revision for one in sent.requests}) == 1
    assert settings_of(cluster) == HOUR


@on_brokers(2, minimum=1)
async def test_a_change_that_was_lost_is_made(cluster: Cluster) -> None:
    """Also where something else has changed meanwhile."""
    await cluster.create("orders", [1])
    await cluster.create("bills", [1])
    sent = ToTheController(cluster)
    sent.lost = 1
    sent.meanwhile = lambda: cluster[2].catalog.change_stream_config("bills", WEEK)
    await cluster[OTHER].catalog.change_stream_config("orders", HOUR)
    assert settings_of(cluster) == HOUR


@on_brokers(2, minimum=1)
async def test_whether_a_lost_change_was_made_is_not_known_once_another_one_came(cluster: Cluster) -> None:
    """Made a second time it would undo what somebody else was told is done."""
    await cluster.create("orders", [1])
    sent = ToTheController(cluster)
    sent.answers_lost = 1
    sent.meanwhile = lambda: cluster[2].catalog.change_stream_config("orders", WEEK)
    with pytest.raises(OutcomeUnknownError, match="changed by entry"):
        await cluster[OTHER].catalog.change_stream_config("orders", HOUR)
    assert settings_of(cluster) == WEEK


@on_brokers(3, minimum=1)
async def test_changes_at_the_same_time_are_all_made(cluster: Cluster) -> None:
    """One after the other; each from the settings that the one before has left."""
    await cluster.create("orders", [1])
    name = "leader.replication.throttled.replicas"

    async def append(broker: int, entry: str) -> None:
        catalog = cluster[broker].catalog

        def appended() -> dict[str, str | None]:
            stream = catalog.stream("orders")
            assert stream is not None
            return {name: ",".join([*filter(None, stream.overrides.get(name, "").split(",")), entry])}

        await catalog.change_stream_config("orders", appended)

    entries = [f"{partition}:{broker}" for partition in range(4) for broker in (1, 2, 3)]
    await asyncio.gather(*(append(int(entry[-1]), entry) for entry in entries))
    assert sorted(settings_of(cluster)[name].split(",")) == sorted(entries)


@on_brokers(1, minimum=1)
async def test_a_late_change_is_refused_by_a_controller_that_was_started_since(cluster: Cluster) -> None:
    """Whatever controllership it names, or none."""
    await cluster.create("orders", [1])
    sent = ToTheController(cluster)
    await cluster[OTHER].catalog.change_stream_config("orders", HOUR)
    await cluster[OTHER].catalog.change_stream_config("orders", WEEK)
    request = sent.requests[0]
    director = cluster.brokers.pop(DIRECTOR)
    await director.stop()
    await cluster.start(DIRECTOR)
    view = cluster[DIRECTOR].cluster.view
    await until(lambda: view.serving, "the controller is back")
    assert isinstance(await sent.again(request), NotControllerError)
    for term in (view.term, None):
        again = await sent.again(msgspec.structs.replace(request, term=term))
        assert isinstance(again, ConcurrentChangeError)
    assert settings_of(cluster) == WEEK
    await cluster[OTHER].catalog.change_stream_config("orders", HOUR)
    assert settings_of(cluster) == HOUR


@on_brokers(1, minimum=1)
async def test_brokers_of_an_earlier_build_are_understood_and_understand(cluster: Cluster) -> None:
    """They name no revision, so nothing is compared; and skip the one that they are sent."""
    await cluster.create("orders", [1])
    sent = ToTheController(cluster)
    await cluster[OTHER].catalog.change_stream_config("orders", HOUR)
    await cluster[OTHER].catalog.change_stream_config("orders", WEEK)
    body = msgspec.msgpack.decode(commands.encode(sent.requests[0]))
    assert body.pop("revision") is not None
    await sent.deliver(msgspec.msgpack.encode(body))
    assert settings_of(cluster) == HOUR

    class EarlierRequest(msgspec.Struct, frozen=True, kw_only=True):
        command: commands.AnyCommand
        forward: bool = False
        term: int | None = None

    read = msgspec.msgpack.decode(commands.encode(sent.requests[0]), type=EarlierRequest)
    assert read.command == sent.requests[0].command


@on_brokers(1, minimum=1)
async def test_a_peer_that_lies_about_term_or_revision_changes_nothing(cluster: Cluster) -> None:
    await cluster.create("orders", [1])
    await cluster[DIRECTOR].catalog.change_stream_config("orders", WEEK)
    director = cluster[DIRECTOR].cluster
    sent, term, applied = ToTheController(cluster), director.view.term, director.state.applied_index
    honest = Request(command=ChangeStreamConfig(name="orders", changes=dict(HOUR)), term=term, revision=applied)
    body = msgspec.msgpack.decode(commands.encode(honest))
    garbage: tuple[Any, ...] = (-1, "7", 1.5, True, [7], {"a": 7}, b"\x00" * 9)
    lies: list[tuple[dict[str, Any], type[LogboomError]]] = [
        *(({"term": lie}, NotControllerError) for lie in (-1, 0, term - 1, term + 1, 2**63 - 1, 2**64 - 1)),
        *(({"revision": lie}, ConcurrentChangeError) for lie in (0, applied - 1)),
        *(({"revision": lie}, InvalidRequestError) for lie in (applied + 1_000, 2**63 - 1, 2**64 - 1)),
        *(({"revision": lie}, InvalidRequestError) for lie in garbage),
        *(({"term": lie}, InvalidRequestError) for lie in garbage[1:]),
        ({"forward": True}, InvalidRequestError),
        ({"forward": True, "term": None, "revision": None}, InvalidRequestError),
    ]
    for fields, error in lies:
        refusal = await refusal_of(sent.deliver(msgspec.msgpack.encode({**body, **fields})))
        assert isinstance(refusal, error), (fields, refusal)
        assert settings_of(cluster) == WEEK
    await sent.deliver(msgspec.msgpack.encode(body))
    assert settings_of(cluster) == HOUR
