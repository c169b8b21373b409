"""Who leads the partitions of new streams."""

from collections import Counter

from tests.metadata.test_cluster import BROKERS, cluster

from logboom.metadata.placement import Load, place


def test_the_leaders_of_a_stream_are_spread_where_others_have_made_brokers_uneven() -> None:
    """Else a stream would be on the emptier broker alone, whatever its load is."""
    image = cluster(3)
    load = Load(replicas=Counter({BROKERS[0]: 50}), preferred=Counter({BROKERS[0]: 50}))
    placed = place(image.brokers, load, partitions=7, replication_factor=2, first=0)
    assert sorted(Counter(replicas[0] for replicas in placed).values()) == [2, 2, 3]
    own = Load()
    for replicas in placed:
        own.add(replicas)
    place(image.brokers, load, partitions=2, replication_factor=1, first=0, own=own)
    assert set(own.preferred.values()) == {3}
