"""What a broker says of partitions that the metadata gives to others."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.kafka.door import running
from tests.support.simulated import run

from logboom.base.errors import NotLeaderError, UnknownStreamError
from logboom.base.ids import BrokerId, DirectoryId, StreamId, StreamName
from logboom.broker.quorum import QuorumMember
from logboom.metadata import StreamCreated, delta_of
from logboom.metadata.records import Placed


def test_a_partition_of_others_is_known_and_not_led_here(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            there = (Placed(replicas=(BrokerId(7),), isr=(BrokerId(7),), leader=BrokerId(7)),)
            created = StreamCreated(
                name=StreamName("s"), id=StreamId(UUID(int=7)), partitions=1, config={}, placed=there
            )
            replicas = node.broker.replicas
            index = node.broker.cluster.state.applied_index + 1
            await node.broker.replica_manager.apply(delta_of(node.broker.catalog.image, (created,)), index)
            with pytest.raises(NotLeaderError, match="no replica of s-0"):
                replicas.find("s", 0)
            for name, index in (("s", 1), ("s", -1), ("t", 0)):
                with pytest.raises(UnknownStreamError):
                    replicas.find(name, index)

    run(body)


def test_the_quorum_of_a_broker_alone_is_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            before = node.broker.cluster.quorum()
            own = node.broker.identity
            assert before.leader == own.broker_id
            (voter,) = before.voters
            assert voter == QuorumMember(
                own.broker_id,
                DirectoryId(own.directory_id),
                before.high_watermark,
                last_caught_up_ms=voter.last_caught_up_ms,
            )
            await node.broker.catalog.create_stream("s")
            after = node.broker.cluster.quorum()
            assert after.high_watermark > before.high_watermark
            assert after.leader_epoch == before.leader_epoch

    run(body)
