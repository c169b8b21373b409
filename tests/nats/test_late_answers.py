"""A leader that is told what the one before it held when it leads no more: over stand-ins of a link and a broker."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.nats.servers import on_a_loop

from logboom.base.ids import BrokerId, StreamId
from logboom.nats.ingress import handover
from logboom.nats.ingress.handover import Gained, Handover
from logboom.nats.ingress.handover_messages import (
    Answer,
    Given,
    Question,
    Wanted,
    encode_answers,
    encode_question,
    read_answers,
)
from logboom.nats.ingress.holding import HeldMessages, HoldingState, Unstored
from logboom.nats.ingress.ingress import Ingress
from logboom.nats.ingress.intake import Intake
from logboom.nats.link.changeover import SETTLED_CLUSTER_S
from logboom.nats.link.commands import publish
from logboom.nats.link.frames import Delivery

STREAM = StreamId(UUID(int=7))
THEIRS = Given(True, b"orders", b"", b"", b"theirs")


PEER = cast("Any", SimpleNamespace(broker_id=BrokerId(2)))


class _Link:
    is_clustered = False
    server_id = "one"

    def __init__(self) -> None:
        self.up = asyncio.Event()
        self.up.set()

    def subscribe(self, subject: str, queue: None, receive: object, refused: Callable[[str], None]) -> int:
        refused(f'Permissions Violation for Subscription to "{subject}"')
        return 1

    def unsubscribe(self, _: Any) -> None:
        """Nothing comes in any case."""

    def round_trip(self, *_: Any) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


@pytest.mark.parametrize(("is_clustered", "server"), [(True, "one"), (False, "other")])
@on_a_loop
async def test_a_leader_of_several_servers_listens_on_for_what_is_on_its_way(is_clustered: bool, server: str) -> None:
    """The next one has heard it before it asked, over another server, and leaves it to the one before it."""
    holding, is_heard = HeldMessages(0), True
    holding.state = HoldingState.HANDING_OVER
    said = list[bytes]()
    link = SimpleNamespace(
        is_clustered=is_clustered, server_id="one", round_trip=_Link().round_trip, send=lambda one: said.append(one)
    )

    async def left(*_: Any) -> HeldMessages:
        return holding

    def hear_no_more(_: Any) -> None:
        nonlocal is_heard
        is_heard = False

    def arrive() -> None:
        if is_heard:
            holding.hold(Unstored(Delivery(1, b"orders", b"", b"", b"late"), by_all=True))

    intake = SimpleNamespace(
        resolve=lambda *_: [], take=lambda one: one.take(), give_up=lambda _: None, refused=lambda _: [b"digest"]
    )
    subscriptions = SimpleNamespace(
        left=left, hear_no_more=hear_no_more, intake=lambda _: intake, close=lambda *_: None
    )
    services = SimpleNamespace(link=link, metrics=SimpleNamespace(handed_over=0, unanswered=0))
    asyncio.get_running_loop().call_later(SETTLED_CLUSTER_S * 2 / 3, arrive)
    question = encode_question(Question("_INBOX.logboom.a", [Wanted(STREAM, 0, 2, [(1, 0)])], server))
    asked = Handover(cast("Any", services), cast("Any", subscriptions)).asked
    answer = await asked(PEER, memoryview(question))
    (told,) = read_answers(memoryview(b"".join(answer)), 1)
    assert told is not None
    assert [one.payload for one in told.given] == [b"late"]
    assert told.refused == [b"digest"]
    assert told.is_apart
    assert said == [], "a mark that stands at another place for each"


@on_a_loop
async def test_an_answer_with_more_acks_than_fit_leaves_some_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of messages that were appended and not committed, as many as `nats.max_inflight_bytes` allows. An answer that
    was too long for a frame was none, and what was held was lost with it, uncounted."""
    monkeypatch.setattr(handover, "_ANSWER_BYTES_MAX", 1_000)
    holdings, given_up = [HeldMessages(0), HeldMessages(1)], list[Unstored]()
    for holding in holdings:
        holding.state = HoldingState.HANDING_OVER
        holding.hold(Unstored(Delivery(1, b"orders", b"", b"", b"held"), by_all=True))
    link = SimpleNamespace(is_clustered=False, round_trip=_Link().round_trip, send=lambda _: True)

    async def left(_: Any, index: int, __: Any) -> HeldMessages:
        return holdings[index]

    intake = SimpleNamespace(
        resolve=lambda *_: [publish(b"_INBOX.a", b"1" * 64)] * 9,
        take=lambda one: one.take(),
        give_up=given_up.extend,
        refused=lambda _: [],
    )
    subscriptions = SimpleNamespace(
        left=left, hear_no_more=lambda _: None, intake=lambda _: intake, close=lambda *_: None
    )
    metrics = SimpleNamespace(handed_over=0, unanswered=0)
    question = encode_question(Question("", [Wanted(STREAM, index, 2, [(1, 0)]) for index in range(2)]))
    asked = Handover(cast("Any", SimpleNamespace(link=link, metrics=metrics)), cast("Any", subscriptions)).asked
    answer = await asked(PEER, memoryview(question))
    first, second = read_answers(memoryview(b"".join(answer)), 2)
    assert first is not None
    assert second is not None
    assert [len(told.given) for told in (first, second)] == [1, 0], "messages go first, which nobody may publish again"
    assert len(given_up) == 1
    assert len(first.acks) < 9
    assert second.acks == []
    assert metrics.unanswered == 18 - len(first.acks)


@pytest.mark.parametrize(("is_given_up", "is_detached"), [(False, False), (True, False), (True, True)])
@on_a_loop
async def test_what_is_told_after_all_was_given_up_is_not_stored(
    is_given_up: bool, is_detached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not allow the inbox of the mark either, which is told."""
    holding, opened = HeldMessages(0), list[bytes]()
    gone: list[Unstored] = []
    asked, answers = asyncio.Event(), asyncio.Event()

    async def call(*_: Any, **__: Any) -> memoryview:
        asked.set()
        await answers.wait()
        return memoryview(encode_answers([Answer([THEIRS], [])]))

    noted = list[str]()
    quiet = SimpleNamespace(
        info=lambda *_, **__: None, warning=lambda *_, **__: None, note=lambda kind, **_: noted.append(kind)
    )
    services = SimpleNamespace(
        broker_id=BrokerId(1),
        link=_Link(),
        ids=SimpleNamespace(uuid=lambda: UUID(int=1)),
        peers=SimpleNamespace(call=call),
        metrics=SimpleNamespace(handovers=0, failed_handovers=0, unanswered=0, inflight_bytes=0),
        budget=SimpleNamespace(took=lambda _: None, gave=lambda _: None),
        log=quiet,
        advisories=quiet,
    )
    intake = Intake("orders", cast("Any", None), {}, cast("Any", services))
    monkeypatch.setattr(intake.replies, "give_up", gone.extend)
    ingress = Ingress(cast("Any", services), cast("Any", SimpleNamespace(image=None)))
    ingress._intakes[STREAM] = intake
    ingress._holdings[STREAM] = {0: holding}
    monkeypatch.setattr(intake, "publish_held", lambda one: opened.extend(each.message.payload for each in one.held))
    log = SimpleNamespace(epochs=SimpleNamespace(entries=((1, 0), (2, 10))))
    partition = cast("Any", SimpleNamespace(log=log, leads=True, leader_epoch=2))
    gaining = asyncio.create_task(
        Handover(cast("Any", services), ingress).gain(BrokerId(2), [Gained(STREAM, holding, partition, 2, intake)])
    )
    await asked.wait()
    if is_given_up:
        ingress._give_up(STREAM, holding)
    if is_detached:
        ingress._forget(STREAM)
    answers.set()
    await gaining
    assert noted == ["nats.subscription_refused"], "nobody noticed that the mark did not come"
    assert opened == ([] if is_given_up else [b"theirs"])
    assert [one.message.payload for one in gone] == ([b"theirs"] if is_given_up else [])
    assert holding.state is (HoldingState.ENDED if is_given_up else HoldingState.PUBLISHING)


@pytest.mark.parametrize("is_asking", [False, True])
def test_what_another_broker_may_tell_of_is_not_refused_for_want_of_room(
    is_asking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader before has heard it too, and hands it over. What a server gave to one of a queue nobody else has."""
    services = SimpleNamespace(
        budget=SimpleNamespace(allows=lambda: False), log=SimpleNamespace(limit_reached=lambda *_, **__: None)
    )
    intake = Intake("orders", cast("Any", None), {}, cast("Any", services))
    given_up, refused = list[Unstored](), list[Delivery]()
    monkeypatch.setattr(intake, "give_up", given_up.extend)
    monkeypatch.setattr(intake, "_refuse_unread", lambda some, _: refused.extend(some))
    holding = HeldMessages(0)
    holding.is_asking = is_asking
    by_all, of_a_queue = (Delivery(1, b"orders", b"reply", b"", word) for word in (b"all", b"one"))
    intake._hold(holding, [Unstored(by_all, by_all=True), Unstored(of_a_queue, by_all=False)])
    assert [one.message for one in given_up] == ([by_all] if is_asking else [])
    assert refused == ([of_a_queue] if is_asking else [by_all, of_a_queue])
