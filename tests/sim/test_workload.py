"""The clients of a run find what they are there to find."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from tests.sim.nodes import connected, on_node

from logboom.base.ids import Offset
from logboom.kafka.wire.messages import milliseconds
from logboom.records import Record, build_batch
from logboom.sim.client import SimClient, TopicPartition
from logboom.sim.history import History
from logboom.sim.members import GroupHistory
from logboom.sim.node import SimNode
from logboom.sim.scenario import Scenario, run_seed
from logboom.sim.session import ClientContext, Phase
from logboom.sim.simulation import Simulation
from logboom.sim.streams import StreamMaker
from logboom.sim.trimming import Trimmer
from logboom.storage.compaction.key_map import KeyMap

FOUND_BY = 7
"""A seed that finds commits of former members, as of November 2026."""
A, B = TopicPartition("s", 0), TopicPartition("s", 1)


def records(*values: bytes) -> bytes:
    return bytes(build_batch([Record(Offset(n), 0, None, value, ()) for n, value in enumerate(values)]))


# --- groups -----------------------------------------------------------------------------------------------------------


def test_two_owners_of_a_partition_in_one_generation() -> None:
    group = GroupHistory(History())
    group.assigned(1, "x", [A])
    group.assigned(1, "y", [B])
    group.assigned(2, "y", [A, B])
    assert group.history.violations == []
    group.assigned(2, "x", [B])
    assert group.history.violations == [f"{B} belongs to y and x in generation 2"]


def test_committed_offsets_that_go_back_or_that_nobody_sent() -> None:
    group = GroupHistory(History())
    group.found(A, Offset(-1), Offset(-1))
    group.sent[A] = Offset(9)
    group.found(A, Offset(7), Offset(7))
    group.found(A, Offset(9), Offset(7))
    assert group.history.violations == []
    group.found(A, Offset(6), Offset(7))
    group.found(A, Offset(10), Offset(7))
    assert len(group.history.violations) == 2


def test_a_coordinator_that_takes_commits_of_former_members_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Scenario(
        troubled_s=30.0,
        partitions=4,
        trimmed_partitions=0,
        aged_partitions=0,
        plain_producers=0,
        producer_pause_max_s=0.5,
        consumers=0,
        members=2,
        made_streams=0,
        faults=("cut",),
    )
    with monkeypatch.context() as patched:
        patched.setattr("logboom.groups.offsets.Offsets._validate", staticmethod(lambda group, commit: None))
        found = next((seed for seed in range(FOUND_BY, 20) if run_seed(seed, busy).violations), None)
    assert found is not None
    outcome = run_seed(found, busy)
    assert outcome.violations == ()
    assert outcome.generations > 2


# --- streams and deleted records --------------------------------------------------------------------------------------


def with_client(work: Callable[[SimNode, SimClient, Simulation, Phase], Awaitable[None]]) -> None:
    async def body(node: SimNode, simulation: Simulation) -> None:
        client = await connected(node)
        await work(node, client, simulation, Phase())
        client.close()

    on_node(body)


@pytest.mark.parametrize("tampering", ["deleted", "replaced"])
def test_a_stream_that_is_gone_or_has_lost_records_is_found(tampering: str) -> None:
    async def work(node: SimNode, client: SimClient, simulation: Simulation, phase: Phase) -> None:
        history = History()
        maker = StreamMaker("maker", (node.address,), 1, history, phase, simulation.fork("maker"))
        while maker.deletions < 2 or not maker.acked("made-0"):
            phase.producing = True
            running = asyncio.ensure_future(maker.run())
            await asyncio.sleep(0.5)
            phase.producing = False
            await running
        await maker.check_all(client)
        assert history.violations == []
        await client.ask((20, 3), topic_names=("made-0",), timeout=milliseconds(1_000))
        if tampering == "replaced":
            await client.create_stream("made-0", 1, {})
        await maker.check_all(client)
        said = "is missing" if tampering == "deleted" else "lost writes"
        assert [said in violation for violation in history.violations] == [True]

    with_client(work)


def test_a_log_start_that_moves_by_itself_or_back_is_found() -> None:
    history = History()
    history.starts_max[A] = Offset(5)
    history.start_seen(A, Offset(5), history.start_known(A))
    history.start_seen(A, Offset(5), history.start_known(A))
    assert history.violations == []
    history.start_seen(A, Offset(4), history.start_known(A))
    history.start_seen(A, Offset(6), history.start_known(A))
    history.start_seen(B, Offset(1), history.start_known(B))
    assert history.violations == [
        "the log start of s-0 went back from 5 to 4",
        "s-0 starts at 6, which nobody asked for",
        "s-1 starts at 1, which nobody asked for",
    ]


def test_an_answer_that_another_client_s_deletion_overtook_is_no_log_start_that_went_back() -> None:
    history = History(starts_go_back=True)
    history.starts_max[A] = Offset(9)
    history.delete(A, Offset(5))
    asked = history.start_known(A)
    history.delete(A, Offset(8))
    history.start_seen(A, Offset(5), asked)
    assert history.violations == []
    history.start_seen(A, Offset(5), history.start_known(A))
    assert history.violations == ["the log start of s-0 went back from 8 to 5"]


def test_the_trimmer_deletes_what_it_asks_for_and_no_more() -> None:
    async def work(node: SimNode, client: SimClient, simulation: Simulation, phase: Phase) -> None:
        history = History()
        await client.create_stream("s", 1, {})
        chance = simulation.fork("trimmer")
        trimmer = Trimmer(ClientContext("trimmer", (node.address,), [A], history, phase, chance))
        running = asyncio.ensure_future(trimmer.run())
        for number in range(20):
            await client.produce(A, records(b"%d" % number))
            await asyncio.sleep(0.5)
        phase.producing = False
        await running
        assert history.violations == []
        assert 0 < history.starts[A] == history.starts_max[A] == await client.start_offset(A)

    with_client(work)


# --- compacted streams ------------------------------------------------------------------------------------------------


def test_a_compaction_that_keeps_the_first_value_of_a_key_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class KeepsTheFirst(KeyMap):
        def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> tuple[int, list[int]]:
            superseded: list[int] = []
            for key, offset in zip(keys, offsets, strict=True):
                _, before = super().put((key,), (offset,))
                superseded += [offset] if before else []
            return len(keys), superseded

    table = replace(
        Scenario(),
        troubled_s=6.0,
        partitions=1,
        trimmed_partitions=0,
        aged_partitions=0,
        idempotent_producers=0,
        plain_producers=0,
        consumers=0,
        members=0,
        made_streams=0,
        probers=0,
        faults=("cut",),
    )
    with monkeypatch.context() as patched:
        patched.setattr("logboom.storage.compaction.dirty_section.KeyMap", KeepsTheFirst)
        assert "where b'" in "".join(run_seed(1, table).violations)
    outcome = run_seed(1, table)
    assert outcome.violations == ()
    assert outcome.records_compacted > 20


# --- the whole --------------------------------------------------------------------------------------------------------


def test_every_client_of_a_run_has_its_share() -> None:
    outcome = run_seed(3, replace(Scenario(), troubled_s=8.0, faults=("cut", "kill")))
    assert outcome.violations == ()
    assert outcome.records_acked > 500
    assert outcome.records_deleted > 100
    assert outcome.streams_deleted > 0
    assert outcome.generations > 1
    assert outcome.commits > 20
    assert outcome.scrapes > 1
    assert outcome.records_compacted > 20
