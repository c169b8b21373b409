"""Key compaction of the copies of one stream, each by its own broker, beside copies that begin anew."""

from tests.broker.replicated import Cluster, on_brokers, until
from tests.broker.test_log_cleaner import SOON, fill, latest, records_of


@on_brokers(3, cleaner=SOON)
async def test_a_copy_that_was_damaged_is_compacted_again_once_it_was_fetched_anew(cluster: Cluster) -> None:
    """Its log begins where the damaged one began."""
    await cluster.create(
        "table", [1, 2, 3], cleanup_policy="compact", segment_bytes="16384", min_cleanable_dirty_ratio="0.9"
    )
    leader, copy = cluster.leader("table"), cluster.partition(2, "table")
    await fill(leader, 3)
    await cluster.in_sync("table")
    cluster.disk(2).nodes[copy.log.segments[0].path].flip(8 * 500)
    before = cluster.assignment("table").partition_epoch
    await fill(leader, 20)
    await until(lambda: cluster.assignment("table").partition_epoch > before, "the compaction tells the damage")
    await cluster.in_sync("table")
    await fill(leader, 20)
    done = cluster[2].counters.compactions
    await fill(leader, 20)
    await until(lambda: cluster[2].counters.compactions > done, "the copy is compacted")
    assert not cluster[2].cleaner.state.uncleanable
    await until(lambda: copy.high_watermark == leader.high_watermark, "it shows all of it")
    assert latest(await records_of(copy)) == latest(await records_of(leader))
