"""Many clients live together for a while, some honest and some not: the honest ones notice nothing.

Attackers send requests of every API drawn from kio's schema, whole and broken, batches that are none to the streams of
the honest, lie in groups, go away in the middle, and never read. At the end all that was acked is there and nothing of
theirs is, offsets committed are those committed, the log is found right, and the broker has had no fault.
"""

import asyncio
import json
import os
import random
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.attack import Raw, good, peak_bytes, values_in, with_body
from tests.kafka.door import Client, frame, written
from tests.kafka.entities import broken, random_entity
from tests.kafka.fuzzing import LIMITS, served
from tests.kafka.test_bad_input_groups import ASSIGNMENT, beat, commit, committed, joining, sync
from tests.kafka.test_hot_apis import fetch_request, produce_request
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.base.units import MIB
from logboom.kafka.wire.messages import milliseconds
from logboom.records import Codec

SECONDS = float(os.environ.get("LOGBOOM_FUZZ_SECONDS", "60"))
HONEST = ("honest-0", "honest-1")
GROUP = "honest"
EVIL = b"evil"
PEAK_BYTES_MAX = 600 * MIB


class Named:
    """A stream as requests name it."""

    id = None

    def __init__(self, name: str) -> None:
        self.name = name


class Town:
    """Everybody, and what the honest were told."""

    def __init__(self, address: str, seed: int) -> None:
        host, port = address.rsplit(":", 1)
        self.address = host, int(port)
        self.chance = random.Random(seed)
        self.over = False
        self.acked: dict[tuple[str, int], bytes] = {}
        self.commits = 0
        self.last_commit = -1
        self.strikes = 0

    async def live(self, seconds: float) -> None:
        """Until the time is over; raises what an honest client met."""
        honest = [
            self.produce(name, number, idempotent)
            for number, (name, idempotent) in enumerate([(HONEST[0], False), (HONEST[0], True), (HONEST[1], True)])
        ]
        honest += [self.consume(name) for name in HONEST] + [self.belong(*await self.join())]
        attackers = [self.attack(random.Random(self.chance.random())) for _ in range(6)]
        async with asyncio.TaskGroup() as group:
            for life in (*honest, *attackers):
                group.create_task(life)
            await asyncio.sleep(seconds)
            self.over = True

    # --- the honest ---

    async def produce(self, name: str, number: int, idempotent: bool) -> None:
        client = await Client.connect(self.address)
        producer, sequence, count = -1, 0, 0
        if idempotent:
            reply = await client.ask(22, 1, transactional_id=None, transaction_timeout=milliseconds(60_000))
            producer = reply.producer_id
        while not self.over:
            values = [f"{name}/{number}/{count}/{one}".encode() for one in range(self.chance.randint(1, 9))]
            data = good(
                *values,
                codec=self.chance.choice(list(Codec)),
                **({"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if idempotent else {}),
            )
            client.send(0, 9, produce_request(9, Named(name), {0: data}))
            (part,) = (await client.reply()).responses[0].partition_responses
            assert part.error_code is ErrorCode.none, part
            for at, value in enumerate(values):
                assert self.acked.setdefault((name, part.base_offset + at), value) == value
            sequence += len(values)
            count += 1
        await client.close()

    async def consume(self, name: str) -> None:
        client, offset = await Client.connect(self.address), 0
        while not self.over:
            client.send(1, 12, fetch_request(12, Named(name), {0: offset}, max_wait=milliseconds(20)))
            (part,) = (await client.reply()).responses[0].partitions
            assert part.error_code is ErrorCode.none, part
            for value in values_in(part.records):
                assert value is not None
                assert value.startswith(name.encode())
                assert self.acked.get((name, offset), value) == value
                offset += 1
        await client.close()

    async def join(self) -> tuple[Client, str, int]:
        """Into the group while it is still anybody's: before the others are there."""
        client = await Client.connect(self.address)
        client.send(11, 3, joining(group=GROUP, session_ms=120_000, rebalance_ms=120_000))
        joined = await client.reply()
        assert joined.error_code is ErrorCode.none
        return client, joined.member_id, joined.generation_id

    async def belong(self, client: Client, member: str, generation: int) -> None:
        """A member of a group that others try to disturb."""
        synced = await sync(client, member, generation, ((member, ASSIGNMENT),), GROUP)
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, ASSIGNMENT)
        while not self.over:
            self.commits += 1
            note = f"{self.commits}"
            codes = await commit(
                client, (HONEST[0], 0, self.commits, note), group=GROUP, member=member, generation=generation
            )
            assert codes == [ErrorCode.none]
            self.last_commit = self.commits
            assert await beat(client, member, generation, GROUP) is ErrorCode.none
            await asyncio.sleep(0.01)
        await client.close()

    # --- the others ---

    async def attack(self, chance: random.Random) -> None:
        while not self.over:
            reader, writer = await asyncio.open_connection(*self.address)
            try:
                for _ in range(chance.randint(1, 40)):
                    writer.write(self.strike(chance))
                    self.strikes += 1
                    if chance.random() < 0.3:
                        await asyncio.wait_for(reader.read(1 << 16), 0.05)
                    await writer.drain()
            except (ConnectionError, TimeoutError):
                pass
            finally:
                if chance.random() < 0.5:
                    writer.transport.abort()
                else:
                    writer.close()
                    with suppress(ConnectionError):
                        await writer.wait_closed()
            await asyncio.sleep(0)

    def strike(self, chance: random.Random) -> bytes:
        """One thing that an attacker sends."""
        kind = chance.randrange(8)
        if kind == 0:
            return chance.randbytes(chance.randrange(1, 60))
        if kind == 1:
            name, data = chance.choice(HONEST), bad_batch(chance)
            return frame(0, 9, 1, written(produce_request(9, Named(name), {0: data}, acks=chance.choice((-1, 0, 1)))))
        if kind == 2:
            lie = joining(chance.choice(("", "nobody")), group=GROUP, kind="connect", protocols=(("alien", b"x"),))
            return frame(11, 3, 2, written(lie))
        if kind == 3:
            return struct.pack(">i", chance.choice((100, 70_000, 5_000_000))) + frame(0, 9, 1, bytes(50))[4:]
        api_key, version = chance.choice(SERVED)
        cls = load_request_schema(api_key, max(version, 3) if api_key == 0 else version)
        body = written(random_entity(cls, chance))
        return frame(api_key, version, 3, broken(body, chance) if kind < 6 else body)


SERVED = list(served())


def bad_batch(chance: random.Random) -> bytes:
    """Never one that may be stored."""
    codec = chance.choice(list(Codec))
    data = bytearray(
        chance.choice(
            (
                lambda: good(EVIL, codec=codec, control=True),
                lambda: good(EVIL, codec=codec) * 2,
                lambda: good(EVIL, codec=codec)[: chance.randrange(1, 60)],
                lambda: with_body(EVIL * 9, 3, codec),
                lambda: with_body(b"", 1, codec, packed=chance.randbytes(40)),
                lambda: good(EVIL, timestamp_ms=2**62),
            )
        )()
    )
    return bytes(data)


def lived(directory: Path, seed: int, seconds: float) -> None:
    print(f"seed {seed}")
    environment = {**LIMITS, "LOGBOOM_BROKER__GROUPS__INITIAL_REBALANCE_DELAY_MS": "0"}
    with BrokerProcess(directory / "data", environment=environment) as broker:
        with Raw(broker.kafka) as client:
            for name in HONEST:
                assert client.create(name) is ErrorCode.none
        town = Town(broker.kafka, seed)
        asyncio.run(asyncio.wait_for(town.live(seconds), seconds + 120))
        check(broker, town)
        assert peak_bytes(broker.pid) < PEAK_BYTES_MAX
        assert broker.sigterm() == 0
        assert "a request failed" not in broker.log_text()
        found = json.loads(run_logboom(["log", "verify", "--json", str(broker.data)], timeout_s=WAIT_S).stdout)
        assert (found["damaged"], found["damage"]) == (False, [])
        broker.start()
        check(broker, town)
    print(f"{town.strikes} strikes, {len(town.acked)} records acked, {town.commits} commits")
    assert min(town.strikes, len(town.acked), town.commits) > 0


def check(broker: BrokerProcess, town: Town) -> None:
    """All that was acked is where it was said to be, and nothing else is there."""

    async def body() -> None:
        client = await Client.connect(town.address)
        for name in HONEST:
            expected = {offset: value for (stream, offset), value in town.acked.items() if stream == name}
            found: dict[int, bytes | None] = {}
            while len(found) < len(expected):
                client.send(1, 12, fetch_request(12, Named(name), {0: len(found)}))
                (part,) = (await client.reply()).responses[0].partitions
                values = values_in(part.records)
                assert values, (name, part)
                found.update(enumerate(values, len(found)))
            assert found == expected
        assert (await committed(client, GROUP))[HONEST[0], 0] == town.last_commit
        await client.close()

    asyncio.run(asyncio.wait_for(body(), WAIT_S))


def test_well_behaved_clients_are_unaffected_by_hostile_ones(tmp_path: Path) -> None:
    """`lived` asserts that all that was acked to them is there, before and after a restart, and nothing is damaged."""
    lived(tmp_path, 1, 3.0)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_well_behaved_clients_are_unaffected_by_hostile_ones_for_the_given_seconds(tmp_path: Path) -> None:
    """LOGBOOM_FUZZ_SECONDS, or a minute; another seed each time."""
    until_s, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < until_s:
        number += 1
        lived(tmp_path / str(number), random.SystemRandom().randrange(2**32), min(SECONDS, 30.0))
