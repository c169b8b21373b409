"""Connections between brokers over the network's faults, in simulated time: who dials again when, what fails, what
waits, and that a broker that hangs or cannot be reached costs others little."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.peer.servers import CLUSTER, KEY, LoggingServer, address, echo, identity, servers, until
from tests.support.simulated import run

from logboom.base.ids import BrokerId
from logboom.base.units import MIB
from logboom.broker.peers import Address, FrameKind, Lane, PeerIdentity, PeerUnavailableError
from logboom.peer.config import PeerConfig
from logboom.peer.connection import UNSENT_BYTES_MAX, Connection
from logboom.peer.link import CALLS_MAX
from logboom.peer.server import PeerServer
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Machine:
    """A broker that is nothing but a peer server, on a machine of its own: a process that is killed and restarted."""

    def __init__(self, simulation: Simulation, broker_id: int) -> None:
        self.name = f"machine-{broker_id}"
        self.identity = identity(broker_id)
        self.posts: list[bytes] = []
        self.server: PeerServer
        self.process: Process
        self._simulation = simulation

    async def start(self, port: int = 0, *, introduce: bool = True) -> None:
        self.process = self._simulation.process(self.name)
        config = PeerConfig.model_validate({"listen": f"{self.name}:{port}", "key_file": "of-no-use"})

        async def start() -> None:
            self.server = PeerServer(config, (KEY,), runtime=self.process.runtime, log=self.process.log)
            await self.server.start()
            self.server.serve(FrameKind.CONTROL, echo)
            for kind in (FrameKind.RAFT, FrameKind.SNAPSHOT):
                self.server.serve_posts(kind, lambda who, body: self.posts.append(bytes(body)))
            if introduce:
                self.server.identify(self.identity)

        await self.process.run(start())

    def knows(self, *others: "Machine") -> None:
        self.server.locate({other.identity.broker_id: address(other.server) for other in others})

    async def call(self, other: "Machine", body: bytes = b"?", timeout_s: float = 5) -> bytes:
        return bytes(
            await self.process.run(
                self.server.call(other.identity.broker_id, FrameKind.CONTROL, [body], timeout_s=timeout_s)
            )
        )

    async def post(self, other: "Machine", body: bytes, kind: FrameKind = FrameKind.RAFT) -> bool:
        async def post() -> bool:
            return self.server.post(other.identity.broker_id, kind, [body])

        return await self.process.run(post())


async def two_machines(simulation: Simulation) -> tuple[Machine, Machine]:
    one, two = Machine(simulation, 1), Machine(simulation, 2)
    for machine in (one, two):
        await machine.start()
    one.knows(two)
    two.knows(one)
    return one, two


def simulate(body: Callable[[Simulation], Awaitable[None]], seed: int = 1) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        await body(simulation)

    simulation.run(main(), max_s=3_600)


async def answered(one: Machine, two: Machine, within_s: float) -> float:
    """How long it takes until a request is answered again."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    while True:
        assert loop.time() - begun_s < within_s
        try:
            await one.call(two, timeout_s=1)
        except PeerUnavailableError:
            continue
        return loop.time() - begun_s


@pytest.mark.parametrize("seed", range(5))
def test_a_broken_connection_fails_what_waits_for_it_and_the_next_request_finds_another(seed: int) -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        await one.call(two)
        never = asyncio.Event()

        async def hang(who: PeerIdentity, body: memoryview) -> list[bytes]:
            await never.wait()
            return []

        two.server.serve(FrameKind.CONTROL, hang)
        waiting = asyncio.ensure_future(one.call(two, timeout_s=60))
        await asyncio.sleep(1)
        for link in tuple(simulation.network.links):
            link.cut()
        with pytest.raises(PeerUnavailableError, match="broke"):
            await waiting
        two.server.serve(FrameKind.CONTROL, echo)
        assert await one.call(two) == b"1 directory-1: ?"

    simulate(body, seed)


def test_how_long_a_broker_is_lost_counts_from_the_connection_that_broke() -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        assert one.server.lost_for_s(TWO) is None, "there never was one"
        await one.call(two)
        assert one.server.lost_for_s(TWO) is None
        port = address(two.server).port
        two.process.kill()
        await asyncio.sleep(1)
        lost_s = one.server.lost_for_s(TWO)
        assert lost_s is not None
        assert 0.9 < lost_s <= 1
        with pytest.raises(PeerUnavailableError):
            await one.call(two, timeout_s=2)
        later_s = one.server.lost_for_s(TWO)
        assert later_s is not None
        assert later_s > lost_s, "attempts that fail are no news"
        await two.start(port)
        await answered(one, two, 10)
        assert one.server.lost_for_s(TWO) is None
        one.server.identify(identity(1, "another-cluster"))
        assert one.server.lost_for_s(TWO) is None, "ended here"

    simulate(body)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_partition_brokers_speak_again_within_seconds(seed: int) -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        await one.call(two)
        await two.call(one)
        simulation.network.split(one.name, two.name)
        with pytest.raises(PeerUnavailableError):
            await one.call(two, timeout_s=2)
        await asyncio.sleep(120)
        assert one.server.metrics.lanes[Lane.CONTROL].connections == 0
        simulation.network.heal()
        # TCP alone could take the two minutes again that the partition lasted.
        assert await answered(one, two, 10) < 5
        assert await answered(two, one, 10) < 5

    simulate(body, seed)


@pytest.mark.parametrize("direction", [(0, 1), (1, 0)])
def test_a_direction_that_is_blocked_alone_is_noticed_by_posts_too(direction: tuple[int, int]) -> None:
    async def body(simulation: Simulation) -> None:
        machines = one, two = await two_machines(simulation)
        while not await one.post(two, b"first"):
            await asyncio.sleep(0.1)
        sender, receiver = direction
        simulation.network.block(machines[sender].name, machines[receiver].name)
        for _ in range(20):
            await asyncio.sleep(1)
            await one.post(two, b"during")
        assert one.server.metrics.lanes[Lane.CONTROL].connections == 0
        assert one.server.metrics.silent == 1
        simulation.network.heal()
        begun_s = asyncio.get_running_loop().time()
        while not await one.post(two, b"after"):
            await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - begun_s < 5
        await asyncio.sleep(1)
        assert two.posts[-1] == b"after"

    simulate(body)


@pytest.mark.parametrize("direction", [(0, 1), (1, 0)])
def test_a_request_into_silence_fails_after_some_heartbeats(direction: tuple[int, int]) -> None:
    """However long its caller would wait, it is told soon that nothing comes back."""

    async def body(simulation: Simulation) -> None:
        machines = one, two = await two_machines(simulation)
        await one.call(two)
        sender, receiver = direction
        simulation.network.block(machines[sender].name, machines[receiver].name)
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(PeerUnavailableError, match=r"nothing was heard for 2 s"):
            await one.call(two, timeout_s=60)
        assert asyncio.get_running_loop().time() - begun_s <= 2.5

    simulate(body)


def test_connections_that_are_idle_stay() -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        await one.call(two)
        await asyncio.sleep(1_000)
        await one.call(two)
        assert one.server.metrics.dials == 1
        assert two.server.metrics.accepted == 1

    simulate(body)


def test_what_is_asked_and_answered_takes_the_place_of_pings() -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        await one.call(two)
        sent = one.server.metrics.lanes[Lane.CONTROL]
        idle_frames = sent.frames_sent
        await asyncio.sleep(60)
        idle_frames = sent.frames_sent - idle_frames
        busy_frames = sent.frames_sent
        for _ in range(240):
            await asyncio.sleep(0.25)
            await one.call(two)
        busy_frames = sent.frames_sent - busy_frames
        assert 59 <= idle_frames <= 61, "each ping is answered, and the answer shows that the other side lives"
        assert 240 <= busy_frames <= 241
        assert one.server.metrics.dials == 1

    simulate(body)


def test_answers_that_come_without_new_requests_do_not_leave_the_other_side_in_silence() -> None:
    """Long requests of which one is answered in each tick: the side that was asked has nothing to hear but pings."""

    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)

        async def slow(who: PeerIdentity, body: memoryview) -> list[bytes]:
            await asyncio.sleep(int(bytes(body)) * 0.3)
            return [b"late"]

        two.server.serve(FrameKind.CONTROL, slow)
        calls = [one.call(two, b"%d" % number, timeout_s=60) for number in range(60)]
        assert await asyncio.gather(*calls) == [b"late"] * 60
        assert one.server.metrics.dials == 1
        assert two.server.metrics.silent == 0

    simulate(body)


def test_a_long_answer_on_a_slow_way_is_no_silence() -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        simulation.network.config = type(simulation.network.config)(
            latency_min_s=0.1, latency_max_s=0.2, piece_bytes_min=16_000, socket_bytes=32_000
        )

        async def long(who: PeerIdentity, body: memoryview) -> list[bytes]:
            return [bytes(8 * MIB)]

        two.server.serve(FrameKind.FETCH, long)
        request = one.server.call(TWO, FrameKind.FETCH, [bytes(4 * MIB)], timeout_s=600)
        answer = await one.process.run(request)
        assert len(answer) == 8 * MIB
        assert asyncio.get_running_loop().time() > 20
        assert one.server.metrics.dials == 1

    simulate(body)


def test_heartbeats_go_on_beside_a_snapshot_on_a_slow_way() -> None:
    """A snapshot of many megabytes takes longer than a lease; what brokers say meanwhile does not wait for it."""

    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        simulation.network.config = type(simulation.network.config)(
            latency_min_s=0.01, latency_max_s=0.02, piece_bytes_min=16_000, socket_bytes=32_000
        )
        snapshot = bytes(8 * MIB)
        for kind in (FrameKind.RAFT, FrameKind.SNAPSHOT):
            while not await one.post(two, b"first", kind):
                await asyncio.sleep(0.1)
        assert await one.post(two, snapshot, FrameKind.SNAPSHOT)
        sent = 0
        while snapshot not in two.posts:
            assert await one.post(two, b"heartbeat %d" % sent)
            sent += 1
            await asyncio.sleep(0.1)
        heard = two.posts.index(snapshot) - two.posts.count(b"first")
        assert sent > 20
        assert heard >= sent - 2  # the last of them are on their way yet

    simulate(body)


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_that_was_killed_and_starts_elsewhere_is_found_by_what_it_says(seed: int) -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        await one.call(two)
        two.process.kill()
        with pytest.raises(PeerUnavailableError, match=r"refused|nobody listens|broke"):
            await one.call(two)
        await asyncio.sleep(30)
        await two.start()
        two.knows(one)
        # Its own request tells where it listens now; the old address is told again, which is no news.
        one.server.locate({TWO: Address("machine-2", 20_002)})
        await two.call(one)
        assert await answered(one, two, 2) < 1

    simulate(body, seed)


def test_a_new_address_is_dialled_at_once() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two.serve(FrameKind.CONTROL, echo)
            one.locate({TWO: Address("127.0.0.1", 1)})
            for _ in range(10):  # up to the longest pause between attempts
                with pytest.raises(PeerUnavailableError, match="cannot be reached"):
                    await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=10)
            waiting = asyncio.ensure_future(one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=10))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            begun_s = asyncio.get_running_loop().time()
            one.locate({TWO: address(two)})
            await waiting
            assert asyncio.get_running_loop().time() - begun_s < 0.1

    run(body)


def test_attempts_to_reach_a_broker_that_is_away_become_rare() -> None:
    async def body() -> None:
        async with servers(identity(1)) as (one,):
            one.locate({TWO: Address("127.0.0.1", 1)})
            for _ in range(6_000):
                assert not one.post(TWO, FrameKind.RAFT, [b"?"])
                await asyncio.sleep(0.01)
            assert 30 <= one.metrics.dials <= 75
            assert one.metrics.failed_dials >= one.metrics.dials - 1
            assert one.metrics.lanes[Lane.CONTROL].dropped_posts == 6_000
            assert len(one.logged()) <= 7

    run(body)


def test_a_request_to_a_broker_whose_address_is_not_known_waits_for_it() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(3)) as (one, three):
            three.serve(FrameKind.CONTROL, echo)
            one._addresses.clear()
            one._located.clear()
            with pytest.raises(PeerUnavailableError, match="did not answer within"):
                await one.call(THREE, FrameKind.CONTROL, [b"?"], timeout_s=1)
            waiting = asyncio.ensure_future(one.call(THREE, FrameKind.CONTROL, [b"?"], timeout_s=10))
            await asyncio.sleep(1)
            one.locate({THREE: address(three)})
            await waiting

    run(body)


def test_nobody_is_spoken_to_before_a_broker_knows_who_it_is() -> None:
    async def body(simulation: Simulation) -> None:
        one, two = Machine(simulation, 1), Machine(simulation, 2)
        await one.start()
        await two.start(introduce=False)
        one.knows(two)
        two.knows(one)
        asked, asks = (asyncio.ensure_future(a.call(b, timeout_s=30)) for a, b in ((one, two), (two, one)))
        await asyncio.sleep(1)
        assert not await two.post(one, b"?")
        assert not asked.done()
        assert not asks.done()
        two.server.identify(two.identity)
        assert await asks == b"2 directory-2: ?"
        assert await asked == b"1 directory-1: ?"

    simulate(body)


def test_a_broker_learns_who_it_is_while_it_takes_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop makes the protocol of a connection first, and gives it over in its next turn. A broker that learned who it
    is in between ended with an AssertionError: once in some hundred starts under all faults at once."""

    async def body(simulation: Simulation) -> None:
        one, two = Machine(simulation, 1), Machine(simulation, 2)
        await one.start()
        await two.start(introduce=False)
        one.knows(two)
        made = Connection.connection_made

        def identify_first(connection: Connection, transport: asyncio.BaseTransport) -> None:
            if connection in two.server._inbound.connections:
                two.server.identify(two.identity)
            made(connection, transport)

        monkeypatch.setattr(Connection, "connection_made", identify_first)
        assert await one.call(two, timeout_s=30) == b"1 directory-1: ?"

    simulate(body)


def test_a_broker_that_joins_learns_the_clusters_id_and_is_known_by_it_from_then_on() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2, cluster_id="")) as (one, two):
            asked: list[PeerIdentity] = []

            async def remember(who: PeerIdentity, body: memoryview) -> list[bytes]:
                asked.append(who)
                return []

            one.serve(FrameKind.CONTROL, remember)
            who, _ = await two.call_address(address(one), FrameKind.CONTROL, [], timeout_s=5)
            await two.call(ONE, FrameKind.CONTROL, [], timeout_s=5)
            two.identify(identity(2, cluster_id=who.cluster_id))
            await two.call(ONE, FrameKind.CONTROL, [], timeout_s=5)
            assert [one.cluster_id for one in asked] == ["", "", who.cluster_id]

    run(body)


@pytest.mark.parametrize("other", ["cluster", "key", "broker", "itself"])
def test_who_is_not_the_one_that_was_meant_is_not_spoken_to(other: str) -> None:
    async def body() -> None:
        async with servers(identity(1)) as (one,):
            stranger = LoggingServer(bytes(32) if other == "key" else KEY)
            await stranger.start()
            stranger.identify(identity(3 if other == "broker" else 2, "another" if other == "cluster" else CLUSTER))
            stranger.serve(FrameKind.CONTROL, echo)
            one.locate({TWO: address(one if other == "itself" else stranger)})
            why = {
                "cluster": "belongs to cluster another",
                "key": "same peer.key_file",
                "broker": "broker 3 listens there, and not broker 2",
                "itself": "address of broker 1 itself",
            }[other]
            with pytest.raises(PeerUnavailableError, match=why):
                await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=5)
            assert any(why in line for line in one.logged())
            await until(lambda: (one if other == "itself" else stranger).metrics.failed_handshakes == 1)
            await stranger.stop()

    run(body)


def test_a_broker_that_hangs_costs_a_bounded_queue() -> None:
    """Its system takes connections and some bytes; nobody reads them."""

    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        await one.call(two)
        two.server.serve_posts(FrameKind.RAFT, lambda who, body: None)
        while not await one.post(two, b"first"):
            await asyncio.sleep(0.01)
        for connection in two.server._inbound.connections:
            connection.set_reading(False)
        sending = one.server._links[TWO, Lane.CONTROL]._up
        assert sending is not None
        taken = 0
        while await one.post(two, bytes(MIB)):
            taken += 1
        assert taken <= UNSENT_BYTES_MAX // MIB + 2
        assert sending.unsent_bytes <= UNSENT_BYTES_MAX + 2 * MIB
        with pytest.raises(PeerUnavailableError, match="does not read"):
            await one.call(two)
        assert one.server.limit_hits()["peer.unsent_bytes"] >= 2
        await asyncio.sleep(10)
        assert one.server.metrics.silent == 1
        assert sending.unsent_bytes == 0
        assert await one.call(two) == b"1 directory-1: ?"

    simulate(body)


def test_requests_without_an_answer_are_bounded_and_leave_nothing() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):

            async def hang(who: PeerIdentity, body: memoryview) -> list[bytes]:
                await asyncio.sleep(1_000)
                return []

            two.serve(FrameKind.CONTROL, hang)
            calls = [one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=60) for _ in range(CALLS_MAX)]
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(1)
            with pytest.raises(PeerUnavailableError, match="as many as allowed"):
                await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=60)
            tasks[0].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[0], asyncio.CancelledError)
            assert all(isinstance(result, PeerUnavailableError) for result in results[1:])
            assert not one._links[TWO, Lane.CONTROL]._answers

    run(body)


def test_answers_that_are_not_read_keep_further_requests_waiting() -> None:
    async def body(simulation: Simulation) -> None:
        one, two = await two_machines(simulation)
        begun = 0

        async def long(who: PeerIdentity, body: memoryview) -> list[bytes]:
            nonlocal begun
            begun += 1
            return [bytes(4 * MIB)]

        two.server.serve(FrameKind.FETCH, long)
        await one.process.run(one.server.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=60))
        connection = one.server._links[TWO, Lane.RECORDS]._up
        assert connection is not None
        connection.set_reading(False)
        calls = [
            asyncio.ensure_future(one.process.run(one.server.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=60)))
            for _ in range(10)
        ]
        for _ in range(10):
            await asyncio.sleep(0.1)
            calls.append(
                asyncio.ensure_future(one.process.run(one.server.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=60)))
            )
        assert begun < 18
        connection.set_reading(True)
        await asyncio.gather(*calls)
        assert begun == 21

    simulate(body)


def test_a_stop_fails_what_waits_and_says_so() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            cancelled = asyncio.Event()

            async def hang(who: PeerIdentity, body: memoryview) -> list[bytes]:
                try:
                    await asyncio.sleep(1_000)
                finally:
                    cancelled.set()
                return []

            two.serve(FrameKind.CONTROL, hang)
            asks = asyncio.ensure_future(one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=60))
            await asyncio.sleep(1)
            await one.stop()
            with pytest.raises(PeerUnavailableError, match="stopping"):
                await asks
            with pytest.raises(PeerUnavailableError, match="stopping"):
                await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=60)
            assert not one.post(TWO, FrameKind.RAFT, [b"?"])
            assert not cancelled.is_set()  # a request goes on without its caller
            await two.stop()
            assert cancelled.is_set()

    run(body)
