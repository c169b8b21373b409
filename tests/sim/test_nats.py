"""NATS in the simulation: the server gives what the real one gives and loses what it loses; wrong brokers are found."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, Final

import pytest

from logboom.broker.metadata_state import MetadataState
from logboom.broker.partition.message_ids import MessageIds
from logboom.broker.partition.publish_stage import _Decisions
from logboom.broker.peers import PeerUnavailableError
from logboom.metadata import ImageDelta
from logboom.nats.ingress import handover
from logboom.nats.ingress.budget import Budget
from logboom.nats.ingress.handover import Handover
from logboom.nats.ingress.holding import Epochs, HeldMessages
from logboom.nats.ingress.intake import Intake
from logboom.raft import Index
from logboom.sim.administration import OPERATOR_LANE
from logboom.sim.cluster import run_cluster_seed
from logboom.sim.cluster_faults import NETWORK_LANE
from logboom.sim.cluster_scenario import ClusterScenario
from logboom.sim.coverage import (
    NATS_ACKS,
    NATS_EXPECTATIONS,
    NATS_FORWARDED,
    NATS_LEFT,
    NATS_MEMBERS,
    NATS_MOVES,
    NATS_REPLACED,
    NATS_RETRIED_TWICE,
    NATS_ROUTES_LOST,
    NATS_SHARED,
    NATS_SLOW_CONSUMERS,
)
from logboom.sim.nats_attached import FEED, SHARED
from logboom.sim.nats_cluster import SimNats
from logboom.sim.nats_faults import NATS_LANE
from logboom.sim.nats_members import MEMBERS_LANE
from logboom.sim.nats_publishing import _Connection
from logboom.sim.nats_routes import Unsettled
from logboom.sim.nats_server import SimNatsServer
from logboom.sim.nats_wire import matches
from logboom.sim.outcome import Outcome
from logboom.sim.schedule import PlannedFault
from logboom.sim.simulation import Simulation

_HURRIED_S: Final = 8.0
_FEED: Final = ClusterScenario(
    beside=(FEED,), nats_servers=(1,), producers=0, plain_producers=0, members=0, troubled_s=2.0, schedule=()
)
"""Nothing goes wrong."""
_TROUBLED: Final = replace(
    _FEED,
    troubled_s=3.0,
    publishers=("plain", "id", "id", "expected"),
    schedule=(
        PlannedFault(0.5, NATS_LANE, "nats-slow", 0.0, 0),
        PlannedFault(1.0, NATS_LANE, "nats-restart", 0.3, 1),
        PlannedFault(1.5, "n1", "kill", 0.1, 0),
        PlannedFault(2.0, NATS_LANE, "nats-cut", 1.0, 2),
        PlannedFault(2.2, "n2", "kill", 0.1, 0),
    ),
)
"""The server loses what it has, and brokers are killed."""
_HANDED_OVER: Final = replace(
    _FEED,
    partitions=1,
    troubled_s=6.0,
    publishers=("plain",) * 8,
    schedule=tuple(
        PlannedFault(0.5 + 0.5 * number, OPERATOR_LANE, ("reassign", "elect")[number % 2], 0.0, number)
        for number in range(10)
    ),
    keeps_all=True,
)
"""Nothing breaks, and leaderships move again and again."""
_LEFT: Final = replace(
    _HANDED_OVER,
    nats_servers=(3,),
    troubled_s=8.0,
    schedule=(
        *(_HANDED_OVER.schedule or ()),
        *(PlannedFault(0.7 + 2.4 * number, NATS_LANE, "nats-leave", 2.0, number) for number in range(3)),
    ),
)
"""The same while one nats-server after the other leaves its cluster in good order, and is back."""
_SHARED: Final = replace(
    _HANDED_OVER,
    beside=(SHARED,),
    consumers=0,
    shared_publishers=("plain",) * 6,
    schedule=tuple(
        fault
        for number in range(20)
        for fault in (
            PlannedFault(0.3 + 0.25 * number, OPERATOR_LANE, ("reassign", "elect")[number % 2], 0.0, number),
            PlannedFault(0.3 + 0.25 * number + 0.004 * (number % 8 - 3), MEMBERS_LANE, "nats-member", 0.1, number),
        )
    ),
)
"""Nothing breaks; streams that share their subjects leave the group and join it again, each time at about the time at
which leaderships move."""
_SHARED_IN_TROUBLE: Final = replace(
    _TROUBLED,
    beside=(SHARED,),
    shared_publishers=("plain", "acked", "id", "id"),
    schedule=(
        *(_TROUBLED.schedule or ()),
        *(PlannedFault(0.4 + 0.5 * number, MEMBERS_LANE, "nats-member", 0.3, number) for number in range(5)),
    ),
)
"""The same where the server loses what it has, and brokers are killed."""
_CUT_OFF: Final = replace(
    _SHARED,
    keeps_all=False,
    troubled_s=9.0,
    shared_publishers=("acked",) * 6,
    schedule=(PlannedFault(0.5, NETWORK_LANE, "isolate", 8.4, 0),),
)
"""One broker does not reach the others for a long while; a nats-server reaches all."""
_FAILING: Final = replace(
    _FEED,
    troubled_s=5.0,
    publishers=("acked",) * 6,
    schedule=(PlannedFault(0.5, "n2", "eio-once", 3.0, 0),),
)
"""The disk of one broker fails, with the metadata on it: it does not hear that others lead."""
_SEVERAL: Final = replace(
    _TROUBLED,
    nats_servers=(3,),
    troubled_s=12.0,
    schedule=(
        PlannedFault(0.5, NATS_LANE, "nats-leave", 0.3, 0),
        PlannedFault(1.5, "n1", "kill", 0.1, 0),
        PlannedFault(2.0, NATS_LANE, "nats-replace", 1.0, 1),
        PlannedFault(3.0, OPERATOR_LANE, "elect", 0.0, 0),
        PlannedFault(4.0, NATS_LANE, "nats-split", 2.5, 2),
        PlannedFault(5.0, OPERATOR_LANE, "reassign", 0.0, 1),
        PlannedFault(7.0, NATS_LANE, "nats-pause", 2.5, 3),
        PlannedFault(7.5, "n2", "kill", 0.1, 0),
        PlannedFault(10.0, NATS_LANE, "nats-cut", 1.0, 4),
        PlannedFault(11.0, NATS_LANE, "nats-restart", 0.3, 5),
    ),
)
"""Three nats-servers, to which everything happens that may."""
_ISOLATED: Final = replace(
    _FEED,
    consumers=0,
    partitions=1,
    troubled_s=8.0,
    publishers=("plain",) * 6,
    schedule=tuple(PlannedFault(0.5 + 1.7 * number, NETWORK_LANE, "isolate", 1.4, number) for number in range(4)),
)
"""One broker after the other is cut off until it is fenced, and leads again soon."""


def _hurried(seed: int, *, cuts: bool = False) -> ClusterScenario:
    """Leaderships move again as soon as they have moved; `cuts`: while brokers hear nothing of NATS for a while, and
    all of it later."""
    chance = Random(seed)

    def lane(name: str, kinds: Sequence[str], pause_max_s: float, lasts_max_s: float) -> Iterator[PlannedFault]:
        at_s, number = chance.uniform(0.2, 1.0), count()
        while at_s < _HURRIED_S:
            length_s = chance.uniform(0.0, lasts_max_s)
            yield PlannedFault(at_s, name, chance.choice(kinds), length_s, next(number))
            at_s += length_s + chance.uniform(0.02, pause_max_s)

    schedule = [*lane(OPERATOR_LANE, ("reassign", "elect", "elect"), 0.5, 0.0)]
    schedule += lane(NATS_LANE, ("nats-cut",), 0.8, 2.5) if cuts else ()
    return replace(
        _FEED,
        consumers=0,
        partitions=1,
        troubled_s=_HURRIED_S,
        publishers=("plain",) * 8,
        schedule=tuple(schedule),
        rest_chance=0.0,  # it is about the haste
    )


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        (b"a.b", b"a.b", True),
        (b"a.*", b"a.b", True),
        (b"a.*", b"a.b.c", False),
        (b"a.>", b"a.b.c", True),
        (b"a.>", b"a", False),
        (b"*.b", b"a.c", False),
        (b"a.b.c", b"a.b", False),
    ],
)
def test_subjects_match_as_with_nats(pattern: bytes, subject: bytes, fits: bool) -> None:
    assert matches(pattern.split(b"."), subject.split(b".")) is fits


class _Client:
    """Raw lines to and from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: SimNatsServer, said: str) -> "_Client":
        client = cls(*await asyncio.open_connection(*server.address))
        assert (await client.reader.readline()).startswith(b"INFO {")
        await client.say(said)
        return client

    async def say(self, said: str) -> None:
        """Say something, and wait until the server has handled it."""
        self.writer.write(f"{said}PING\r\n".encode())
        while (await self.reader.readline()) != b"PONG\r\n":
            pass


def test_messages_go_to_all_subscriptions_to_one_of_a_queue_and_back_to_no_sender_without_echo() -> None:
    simulation = Simulation(1)

    async def main() -> list[bytes]:
        server = SimNatsServer(simulation, "nats", Unsettled())
        await server.start()
        one = await _Client.connect(server, "SUB a.* 1\r\nSUB a.b workers 2\r\n")
        other = await _Client.connect(server, "SUB a.b workers 3\r\n")
        sender = await _Client.connect(server, 'CONNECT {"echo":false}\r\nSUB > 1\r\n')
        await sender.say("PUB a.b in.1 2\r\nhi\r\nHPUB a.c 12 14\r\nNATS/1.0\r\n\r\nho\r\n")
        got = [await one.reader.readexactly(len(b"MSG a.b 1 in.1 2\r\nhi\r\n"))]
        if (line := await one.reader.readline()).startswith(b"MSG a.b 2"):
            assert await one.reader.readline() == b"hi\r\n"
            line = await one.reader.readline()
        else:
            assert await other.reader.readline() == b"MSG a.b 3 in.1 2\r\n"
        got += [line, await one.reader.readexactly(len(b"NATS/1.0\r\n\r\nho\r\n"))]
        for client in (one, other, sender):
            client.writer.close()
        return got

    assert simulation.run(main()) == [
        b"MSG a.b 1 in.1 2\r\nhi\r\n",
        b"HMSG a.c 1 12 14\r\n",
        b"NATS/1.0\r\n\r\nho\r\n",
    ]


def test_who_does_not_read_is_cut_off_and_who_asks_nobody_is_told() -> None:
    simulation = Simulation(1)

    async def main() -> bytes:
        server = SimNatsServer(simulation, "nats", Unsettled())
        await server.start()
        reading = simulation.process("reader")
        reader = await reading.run(_Client.connect(server, "SUB big 1\r\n"))
        reading.pause()
        options = '{"no_responders":true,"headers":true}'
        sender = await _Client.connect(server, f"CONNECT {options}\r\nSUB in.* 7\r\n")
        for _ in range(10):
            await sender.say(f"PUB big 50000\r\n{'x' * 50_000}\r\n")
        await sender.say("")
        sender.writer.write(b"PUB big in.1 2\r\nhi\r\n")
        answer = await sender.reader.readline()
        for client in (reader, sender):
            client.writer.close()
        return answer

    assert simulation.run(main()) == b"HMSG in.1 7 16 16\r\n"
    assert simulation.trace.met[NATS_SLOW_CONSUMERS] == 1


def test_servers_of_a_cluster_hand_messages_on_once_and_to_one_of_a_queue() -> None:
    simulation = Simulation(1)

    async def main() -> list[bytes]:
        nats = SimNats(simulation, 3)
        await nats.start()
        one, other, third = nats.servers
        plain = await _Client.connect(one, "SUB a.* 1\r\n")
        near = await _Client.connect(other, "SUB a.b workers 2\r\n")
        far = await _Client.connect(third, "SUB a.b workers 3\r\n")
        sender = await _Client.connect(other, "SUB a.b 9\r\n")
        await asyncio.sleep(0.1)
        await sender.say("PUB a.b in.1 2\r\nhi\r\nPUB a.c 2\r\nho\r\n")
        got = [await plain.reader.readexactly(len(b"MSG a.b 1 in.1 2\r\nhi\r\n")), await plain.reader.readline()]
        got.append(await near.reader.readline())
        await asyncio.sleep(0.1)
        far.writer.write(b"PING\r\n")
        got.append(await far.reader.readline())
        for client in (plain, near, far, sender):
            client.writer.close()
        return got

    assert simulation.run(main()) == [
        b"MSG a.b 1 in.1 2\r\nhi\r\n",
        b"MSG a.c 1 2\r\n",
        b"MSG a.b 2 in.1 2\r\n",
        b"PONG\r\n",
    ]


def test_a_server_whose_member_of_a_queue_has_left_hands_its_messages_on() -> None:
    """The other one chose that member, since it had not heard of its end."""
    simulation = Simulation(1)

    async def main() -> bytes:
        nats = SimNats(simulation, 3)
        await nats.start()
        one, other, third = nats.servers
        leaver = await _Client.connect(other, "SUB a workers 2\r\n")
        sender = await _Client.connect(one, "")
        await asyncio.sleep(0.1)
        simulation.network.block(other.name, one.name)
        simulation.network.block(third.name, one.name)
        stayer = await _Client.connect(third, "SUB a workers 3\r\n")
        await leaver.say("UNSUB 2\r\n")
        await asyncio.sleep(0.1)
        await sender.say("PUB a 2\r\nhi\r\n")
        async with asyncio.timeout(1.0):
            got = await stayer.reader.readline()
        for client in (leaver, stayer, sender):
            client.writer.close()
        return got

    assert simulation.run(main()) == b"MSG a 3 2\r\n"


def test_a_server_that_leaves_tells_its_clients_and_ends_their_connections_later() -> None:
    """It takes no new ones; the others do not name it any more, and name it again once it is back."""
    simulation = Simulation(1)

    async def main() -> tuple[list[Any], list[Any]]:
        nats = SimNats(simulation, 2)
        await nats.start()
        leaving, stays = nats.servers
        client = await _Client.connect(leaving, "")
        loop = asyncio.get_running_loop()
        began_s, ended = loop.time(), asyncio.ensure_future(leaving.leave(1.0))
        told = json.loads((await client.reader.readline()).removeprefix(b"INFO "))
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*leaving.address)
        await asyncio.sleep(0.1)
        named = await _named_by(stays)
        assert await client.reader.read() == b""
        assert 1.0 <= loop.time() - began_s < 1.1
        await ended
        client.writer.close()
        await nats.start_one(leaving)
        return [told["ldm"], told["connect_urls"]], [named, await _named_by(stays)]

    told, named = simulation.run(main())
    assert told == [True, ["nats-2:4222"]]
    assert named == [["nats-2:4222"], ["nats-2:4222", "nats:4222"]]


async def _named_by(server: SimNatsServer) -> Any:
    reader, writer = await asyncio.open_connection(*server.address)
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    writer.close()
    return info["connect_urls"]


def test_what_is_late_between_servers_and_what_lacks_a_route_is_known() -> None:
    simulation = Simulation(1)

    async def main() -> Unsettled:
        nats = SimNats(simulation, 2)
        await nats.start()
        one, other = nats.servers
        reader = await _Client.connect(one, "SUB a 1\r\n")
        sender = await _Client.connect(other, "")
        await asyncio.sleep(0.1)
        await sender.say("PUB a 6\r\nprompt\r\n")
        await asyncio.sleep(0.1)
        simulation.network.split(one.name, other.name)
        await sender.say("PUB a 4\r\nlate\r\nHPUB a 28 30\r\nNATS/1.0\r\nNats-Msg-Id: 1\r\n\r\nhi\r\n")
        await asyncio.sleep(0.5)
        simulation.network.heal()
        await asyncio.sleep(1.0)
        simulation.network.split(one.name, other.name)
        await asyncio.sleep(3.0)
        await sender.say("PUB a 6\r\nastray\r\n")
        for client in (reader, sender):
            client.writer.close()
        return nats.unsettled

    assert simulation.run(main()) == Unsettled({b"late"}, {b"astray"})


def test_servers_tell_of_what_was_subscribed_while_a_route_was_made() -> None:
    """One stood still meanwhile. It never heard of that, and its clients' messages were lost until the subscriber came
    to it: seed 40 of three servers to which everything happens."""
    simulation = Simulation(1)

    async def main() -> bytes:
        nats = SimNats(simulation, 2)
        await nats.start()
        still, other = nats.servers
        sender = await _Client.connect(still, "")
        still.pause()
        await asyncio.sleep(3.0)
        reader = await _Client.connect(other, "SUB a 1\r\n")
        still.resume()
        await asyncio.sleep(1.0)
        await sender.say("PUB a 2\r\nhi\r\n")
        async with asyncio.timeout(1.0):
            while (got := await reader.reader.readline()).startswith(b"INFO"):
                pass
        for client in (sender, reader):
            client.writer.close()
        return got

    assert simulation.run(main(), max_s=60) == b"MSG a 1 2\r\n"


def test_whatever_happens_to_several_servers_what_is_acked_is_kept_once() -> None:
    outcome = run_cluster_seed(1, _SEVERAL)
    assert outcome.violations == ()
    assert all(outcome.met[name] for name in (NATS_LEFT, NATS_REPLACED, NATS_MOVES, NATS_FORWARDED, NATS_ROUTES_LOST))


def test_no_plain_message_is_lost_where_servers_leave_while_leaders_hand_over() -> None:
    outcome = run_cluster_seed(2, _LEFT)
    assert outcome.violations == ()
    assert outcome.met[NATS_LEFT] == 3
    assert outcome.met[NATS_MOVES]
    assert outcome.elections > _LEFT.partitions + 2


def test_what_is_published_on_nats_is_kept_once_and_in_order_whatever_breaks() -> None:
    outcome = run_cluster_seed(1, _TROUBLED)
    assert outcome.violations == ()
    assert outcome.met[NATS_ACKS]
    assert outcome.met[NATS_EXPECTATIONS]


def test_no_plain_message_is_lost_where_leaders_that_are_alive_hand_over() -> None:
    """An operator moves replicas and elects meanwhile."""
    outcome = run_cluster_seed(2, _HANDED_OVER)
    assert outcome.violations == ()
    assert outcome.elections > _HANDED_OVER.partitions + 2


def test_no_plain_message_is_lost_or_in_two_streams_of_a_group_whose_members_and_leaders_change() -> None:
    """A leader that ceased to lead when its stream left the group held what nobody asked for: seeds 2, 4, 7, 9 and 10
    of the first twelve."""
    outcome = run_cluster_seed(2, _SHARED)
    assert outcome.violations == ()
    assert outcome.met[NATS_MEMBERS] == 20


def test_what_streams_of_a_group_have_acked_one_of_them_keeps_whatever_breaks() -> None:
    """A retry with an id may be in two: each knows those of its own messages alone."""
    outcome = run_cluster_seed(1, _SHARED_IN_TROUBLE)
    assert outcome.violations == ()
    assert outcome.met[NATS_MEMBERS]
    assert outcome.met[NATS_SHARED]
    assert outcome.met[NATS_RETRIED_TWICE]


def test_a_broker_that_is_cut_off_from_the_others_leaves_its_part_of_a_queue_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not cut off from the nats-server. Without that every third message was not answered, to the end."""
    request, unanswered = _Connection.request, list[float]()

    async def noted(self: _Connection, *message: Any) -> Any:
        try:
            return await request(self, *message)
        except TimeoutError:
            unanswered.append(asyncio.get_running_loop().time())
            raise

    monkeypatch.setattr(_Connection, "request", noted)
    outcome = run_cluster_seed(0, _CUT_OFF)
    assert outcome.violations == ()
    assert unanswered
    assert max(unanswered) - min(unanswered) < 4.0


def test_what_a_leader_refuses_whose_lease_is_over_no_other_one_stores() -> None:
    """The next one has heard it too, so who is not certain to lead says nothing."""
    assert run_cluster_seed(0, _FAILING).violations == ()


def test_what_a_leader_refuses_that_was_replaced_no_other_one_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers hear late of the next leader, and have no room for a third of the messages. Those that one refuses in
    its place the next one has heard too."""
    chance, allows, follow = Random(12), Budget.allows, MetadataState._follow

    async def late(self: MetadataState, index: Index, delta: ImageDelta) -> None:
        if delta.reassigned:
            await asyncio.sleep(chance.uniform(0, 0.3))
        await follow(self, index, delta)

    monkeypatch.setattr(Budget, "allows", lambda self: chance.random() < 0.7 and allows(self))
    monkeypatch.setattr(MetadataState, "_follow", late)
    assert run_cluster_seed(12, replace(_hurried(12), publishers=("acked",) * 8)).violations == ()


@pytest.mark.slow
def test_a_leader_that_holds_nothing_for_the_next_one_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "_hold", lambda *_: None)
    found = [run_cluster_seed(seed, _HANDED_OVER).violations for seed in range(1, 5)]
    assert any("that were sent are not there" in violation for violations in found for violation in violations)


def test_a_leader_that_takes_messages_whatever_they_expect_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Decisions, "_terms_fault", lambda *_: None)
    outcome = run_cluster_seed(1, replace(_FEED, publishers=("expected", "acked")))
    assert any("and expected" in violation for violation in outcome.violations)


@pytest.mark.slow
def test_a_leader_that_does_not_know_ids_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageIds, "find", lambda *_: None)
    found = [run_cluster_seed(seed, replace(_TROUBLED, publishers=("id",) * 6)).violations for seed in range(3)]
    assert any("duplicate" in violation for violations in found for violation in violations)


def test_a_leader_that_was_fenced_and_leads_again_stores_nothing_that_it_had_kept() -> None:
    """Nobody had asked it, and others had stored later messages, or the same: seed 4 had messages twice, 300037 of a
    campaign out of order."""
    assert run_cluster_seed(4, _ISOLATED).violations == ()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", [5, 10])
def test_a_leader_that_gets_no_answer_goes_on_and_the_one_before_it_leads_again(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """That one has kept what it heard, for a leader that has heard it too and has stored it meanwhile."""
    chance, ask = Random(seed), Handover._ask

    async def asked_in_vain(self: Handover, *question: Any) -> Any:
        if chance.random() < 0.7:
            raise PeerUnavailableError("the connection broke")
        return await ask(self, *question)

    monkeypatch.setattr(Handover, "_ask", asked_in_vain)
    assert run_cluster_seed(seed, _hurried(seed)).violations == ()


def _with_kafka_producers(monkeypatch: pytest.MonkeyPatch, seed: int, answer_s: float) -> tuple[Outcome, int]:
    """What comes of a run in which leaders mostly get no answers, after so long, and Kafka's producers write to the
    stream too; and how often a leader kept messages since those in between had stored none."""
    chance, ask, keep, kept = Random(seed), Handover._ask, HeldMessages.without_others, 0

    async def asked_in_vain(self: Handover, *question: Any) -> Any:
        if chance.random() < 0.8:
            await asyncio.sleep(answer_s)
            raise PeerUnavailableError("the connection broke")
        return await ask(self, *question)

    def counted(self: HeldMessages, epochs: Epochs, epoch: int) -> Epochs:
        nonlocal kept
        kept += 1
        return keep(self, epochs, epoch)

    monkeypatch.setattr(Handover, "_ask", asked_in_vain)
    monkeypatch.setattr(HeldMessages, "without_others", counted)
    return run_cluster_seed(seed, replace(_hurried(seed), producers=2, producer_pause_max_s=0.1)), kept


def test_a_leader_in_between_that_has_stored_records_of_kafka_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for an answer, and had stored nothing of NATS when it lost the leadership: what the one before it has
    kept, and stores once it leads again, nobody else has stored."""
    outcome, kept = _with_kafka_producers(monkeypatch, 11, 2.0)
    assert outcome.violations == ()
    assert kept


@pytest.mark.slow
def test_a_leader_that_takes_everything_for_records_of_kafka_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> bool:
        return False

    monkeypatch.setattr(handover, "may_have_header", never)
    outcome, _ = _with_kafka_producers(monkeypatch, 6, 0.0)
    assert any("duplicate" in violation for violation in outcome.violations)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", [5, 6])
def test_what_nats_brings_late_is_not_stored_again(seed: int) -> None:
    """A leader that was subscribed already gets it after others have stored it, and later messages. In seed 6 a next
    leader loses its connection while it waits to have heard all, and is told of messages of before that and since."""
    assert run_cluster_seed(seed, _hurried(seed, cuts=True)).violations == ()
