"""Requests, posts and answers between brokers: what arrives, who is told to have sent it, and what fails how."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.peer.servers import LoggingServer, address, echo, identity, real, servers, until
from tests.support.server import free_port
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.errors import InvalidRecordError, InvalidRequestError, NotLeaderError
from logboom.base.ids import BrokerId
from logboom.base.units import KIB, MIB
from logboom.broker.peers import BODY_BYTES_MAX, FrameKind, Lane, PeerIdentity, PeerUnavailableError, SendPart
from logboom.peer.frames import PREFIX_BYTES, SCRATCH_BYTES

ONE, TWO = BrokerId(1), BrokerId(2)
Body = Callable[[], Awaitable[None]]

everywhere = pytest.mark.parametrize("on", [run, real], ids=["simulated", "real"])


@everywhere
def test_a_request_is_answered_and_both_sides_know_who_the_other_is(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two.serve(FrameKind.CONTROL, echo)
            answer = await one.call(TWO, FrameKind.CONTROL, [b"a", memoryview(b"bc")], timeout_s=WAIT_S)
            assert bytes(answer) == b"1 directory-1: abc"
            one.serve(FrameKind.CONTROL, echo)
            who, answer = await two.call_address(address(one), FrameKind.CONTROL, [b"?"], timeout_s=WAIT_S)
            assert who == identity(1)
            assert bytes(answer) == b"2 directory-2: ?"

    on(body)


@everywhere
def test_long_bodies_arrive_whole(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            sizes = [0, 1, 4_095, 64 * KIB, 256 * KIB, 300 * KIB + 1, MIB]

            async def doubled(who: PeerIdentity, body: memoryview) -> list[memoryview]:
                return [body, body]

            two.serve(FrameKind.FETCH, doubled)
            bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
            answers = await asyncio.gather(
                *(one.call(TWO, FrameKind.FETCH, [part], timeout_s=60) for part in bodies),
            )
            assert [bytes(answer) for answer in answers] == [2 * part for part in bodies]

    on(body)


@everywhere
def test_parts_of_an_answer_come_in_their_order_before_it(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):

            async def counting(who: PeerIdentity, body: memoryview, send_part: SendPart) -> list[bytes]:
                for number in range(3):
                    send_part([b"%d" % number, bytes(number * 300 * KIB)])
                    await asyncio.sleep(0)
                return [b"answer"]

            two.serve_in_parts(FrameKind.FETCH, counting)
            came: list[bytes] = []
            answer = await one.call(
                TWO, FrameKind.FETCH, [b"?"], timeout_s=60, on_part=lambda part: came.append(bytes(part))
            )
            assert bytes(answer) == b"answer"
            assert came == [b"%d" % number + bytes(number * 300 * KIB) for number in range(3)]

    on(body)


@everywhere
def test_a_part_that_is_not_taken_fails_its_request_alone(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):

            async def one_part(who: PeerIdentity, body: memoryview, send_part: SendPart) -> list[bytes]:
                send_part([b"part"])
                return [b"answer"]

            def failing(part: memoryview) -> None:
                raise ValueError("a bug")

            two.serve_in_parts(FrameKind.FETCH, one_part)
            with pytest.raises(PeerUnavailableError, match="was not taken"):
                await one.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=WAIT_S, on_part=failing)
            came: list[memoryview] = []
            await one.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=WAIT_S, on_part=came.append)
            assert came == [b"part"]

    on(body)


@everywhere
def test_parts_for_somebody_who_takes_none_end_the_connection(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):

            async def one_part(who: PeerIdentity, body: memoryview, send_part: SendPart) -> list[bytes]:
                send_part([b"part"])
                return [b"answer"]

            two.serve_in_parts(FrameKind.FETCH, one_part)
            with pytest.raises(PeerUnavailableError, match="takes none"):
                await one.call(TWO, FrameKind.FETCH, [b"?"], timeout_s=WAIT_S)

    on(body)


@everywhere
def test_posts_arrive_in_their_order(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            got: list[tuple[PeerIdentity, bytes]] = []
            two.serve_posts(FrameKind.RAFT, lambda who, body: got.append((who, bytes(body))))
            assert not one.post(TWO, FrameKind.RAFT, [b"too early"])
            await until(lambda: one.post(TWO, FrameKind.RAFT, [b"first"]))
            for number in range(100):
                assert one.post(TWO, FrameKind.RAFT, [b"%d" % number, bytes(number * 100)])
            await until(lambda: len(got) >= 101)
            assert got[0] == (identity(1), b"first")
            assert [body for _, body in got[1:]] == [b"%d" % number + bytes(number * 100) for number in range(100)]
            assert one.metrics.lanes[Lane.CONTROL].dropped_posts >= 1

    on(body)


def test_answers_come_in_any_order() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            gates = {b"slow": asyncio.Event(), b"fast": asyncio.Event()}

            async def gated(who: PeerIdentity, body: memoryview) -> list[bytes]:
                await gates[bytes(body)].wait()
                return [bytes(body)]

            two.serve(FrameKind.CONTROL, gated)
            slow = asyncio.ensure_future(one.call(TWO, FrameKind.CONTROL, [b"slow"], timeout_s=WAIT_S))
            fast = asyncio.ensure_future(one.call(TWO, FrameKind.CONTROL, [b"fast"], timeout_s=WAIT_S))
            gates[b"fast"].set()
            assert bytes(await fast) == b"fast"
            assert not slow.done()
            gates[b"slow"].set()
            assert bytes(await slow) == b"slow"

    run(body)


def test_what_a_handler_raises_is_raised_at_the_caller() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            errors: list[Exception] = [
                NotLeaderError("it leads nothing", limit="some.limit"),
                InvalidRecordError("wrong", record_indexes=(3, 4), record_messages=("a", "b")),
                RuntimeError("a fault"),
            ]

            async def failing(who: PeerIdentity, body: memoryview) -> list[bytes]:
                raise errors[int(bytes(body))]

            two.serve(FrameKind.CONTROL, failing)
            with pytest.raises(NotLeaderError, match="it leads nothing") as not_leader:
                await one.call(TWO, FrameKind.CONTROL, [b"0"], timeout_s=WAIT_S)
            assert not_leader.value.limit == "some.limit"
            with pytest.raises(InvalidRecordError, match=r"^wrong$") as invalid:
                await one.call(TWO, FrameKind.CONTROL, [b"1"], timeout_s=WAIT_S)
            assert list(invalid.value.record_indexes) == [3, 4]
            assert list(invalid.value.record_messages) == ["a", "b"]
            with pytest.raises(PeerUnavailableError, match="see its log"):
                await one.call(TWO, FrameKind.CONTROL, [b"2"], timeout_s=WAIT_S)
            assert "a fault" in two.logged("exc_info")[0]
            assert two.metrics.lanes[Lane.CONTROL].failed_requests == 3

    run(body)


def test_a_request_waits_for_a_handler_that_comes_late_and_no_longer_than_its_caller() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            with pytest.raises(PeerUnavailableError):
                await one.call(TWO, FrameKind.CONTROL, [b"-"], timeout_s=0.5)
            waiting = asyncio.ensure_future(one.call(TWO, FrameKind.CONTROL, [b"+"], timeout_s=WAIT_S))
            await asyncio.sleep(1)
            two.serve(FrameKind.CONTROL, echo)
            assert bytes(await waiting) == b"1 directory-1: +"

    run(body)


def test_a_body_that_is_too_long_is_refused_before_it_is_sent() -> None:
    async def body() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two.serve(FrameKind.CONTROL, echo)
            await one.call(TWO, FrameKind.CONTROL, [b"a"], timeout_s=WAIT_S)
            too_long = [bytes(BODY_BYTES_MAX), b"1"]
            with pytest.raises(InvalidRequestError, match=str(BODY_BYTES_MAX + 1)):
                await one.call(TWO, FrameKind.CONTROL, too_long, timeout_s=WAIT_S)
            assert not one.post(TWO, FrameKind.RAFT, too_long)
            assert bytes(await one.call(TWO, FrameKind.CONTROL, [b"b"], timeout_s=WAIT_S)) == b"1 directory-1: b"

    run(body)


@everywhere
def test_a_broker_that_was_away_is_dialled_again(on: Callable[[Body], None]) -> None:
    async def body() -> None:
        listen = f"127.0.0.1:{free_port()}"
        async with servers(identity(1)) as (one,):
            away = LoggingServer(listen=listen)
            await away.start()
            one.locate({TWO: address(away)})
            await away.stop()
            with pytest.raises(PeerUnavailableError, match=r"broker 2 at .* cannot be reached"):
                await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=WAIT_S)
            back = LoggingServer(listen=listen)
            await back.start()
            back.identify(identity(2))
            back.serve(FrameKind.CONTROL, echo)
            try:
                assert bytes(await one.call(TWO, FrameKind.CONTROL, [b"?"], timeout_s=WAIT_S)).endswith(b"?")
            finally:
                await back.stop()

    on(body)


def test_a_flood_leaves_others_their_turn() -> None:
    """One read of 256 KiB is taken in a turn of the loop, where uvloop would do 32."""
    body, posts = bytes(100), 20_000
    frame_bytes = PREFIX_BYTES + len(body)
    in_turn = most = total = 0

    def arrived(who: PeerIdentity, body: memoryview) -> None:
        nonlocal in_turn, total
        in_turn, total = in_turn + 1, total + 1

    def next_turn() -> None:
        nonlocal in_turn, most
        most, in_turn = max(most, in_turn), 0
        if total < posts:
            asyncio.get_running_loop().call_soon(next_turn)

    async def flood() -> None:
        async with servers(identity(1), identity(2)) as (one, two):
            two.serve_posts(FrameKind.RAFT, arrived)
            await until(lambda: one.post(TWO, FrameKind.RAFT, [body]))
            await until(lambda: total == 1)
            next_turn()
            for _ in range(posts - 1):
                assert one.post(TWO, FrameKind.RAFT, [body])
            await until(lambda: total == posts)

    real(flood)
    assert most * frame_bytes <= SCRATCH_BYTES + frame_bytes
