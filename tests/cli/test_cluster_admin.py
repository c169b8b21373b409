"""logboom cluster reassign, rebalance, drain and remove, on a cluster of real processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import ok, refused
from tests.support.cluster import ClusterProcess
from tests.support.server import BrokerProcess, free_port

from logboom.cli.cluster_admin import spread


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path_factory.mktemp("admin") / "c") as process:
        yield process


def replicas_of(cluster: ClusterProcess, stream: str) -> dict[int, list[int]]:
    """The replicas of each partition."""
    told = ok("streams", "describe", stream, "--json", bootstrap=cluster.bootstrap).json
    return {each["partition"]: each["replicas"] for each in told["partitions"]}


def node_of(told: dict[str, Any], node: int) -> dict[str, Any]:
    """What the status says of one node."""
    return next(each for each in told["nodes"] if each["id"] == node)


def test_stream_moves_to_other_brokers_with_its_records(cluster: ClusterProcess) -> None:
    ok("streams", "create", "moved", "--partitions", "4", "--replicas", "1", bootstrap=cluster.bootstrap)
    lines = "".join(f"{number}\n" for number in range(100))
    ok("publish", "moved", bootstrap=cluster.bootstrap, stdin=lines)
    cluster.do("reassign", "moved", "--to", "3,1")
    assert {index: sorted(nodes) for index, nodes in replicas_of(cluster, "moved").items()} == {
        index: [1, 3] for index in range(4)
    }
    cluster.do("rebalance")
    leaders = ok("streams", "describe", "moved", "--json", bootstrap=cluster.bootstrap).json["partitions"]
    assert [each["leader"] for each in leaders] == [3, 1, 3, 1]
    read = ok("tail", "moved", "--earliest", "--count", "100", bootstrap=cluster.bootstrap).out
    assert sorted(map(int, read.split())) == list(range(100))


def test_a_throttle_is_lifted_when_the_move_has_ended_or_on_request(cluster: ClusterProcess) -> None:
    bootstrap = cluster.bootstrap
    ok("streams", "create", "slow", "--replicas", "2", bootstrap=bootstrap)
    (before,) = replicas_of(cluster, "slow").values()
    (other,) = {1, 2, 3} - set(before)

    def throttled() -> set[str]:
        """The settings that are set."""
        stream = ok("streams", "describe", "slow", "--json", bootstrap=bootstrap).json["config"]
        broker = ok("config", "describe", "--changed", "--json", bootstrap=bootstrap).json
        named = {name for name, each in stream.items() if each["set"]} | {each["setting"] for each in broker}
        return {name for name in named if "throttled" in name}

    cluster.do("reassign", "slow", "--to", f"{other},{before[0]}", "--throttle", "50MB/s")
    assert set(replicas_of(cluster, "slow")[0]) == {other, before[0]}
    assert throttled() == set()
    cluster.do("reassign", "slow", "--to", "1,2,3", "--throttle", "50MB", "--no-wait")
    assert throttled() == {
        f"{side}.replication.throttled.{what}" for side in ("leader", "follower") for what in ("rate", "replicas")
    }
    cluster.do("unthrottle")
    assert throttled() == set()
    assert "nothing would ever be copied" in refused(
        "cluster", "reassign", "slow", "--to", "1", "--throttle", "0", "--data", str(cluster.folder)
    )


def test_what_cannot_be_moved_is_explained(cluster: ClusterProcess) -> None:
    data = ("--data", str(cluster.folder))
    ok("streams", "create", "still", bootstrap=cluster.bootstrap)
    assert "name the target with --to" in refused("cluster", "reassign", "still", *data)
    assert "name each broker only once" in refused("cluster", "reassign", "still", "--to", "1,1", *data)
    assert "--to names 2 brokers alone" in refused(
        "cluster", "reassign", "still", "--to", "1,2", "--replicas", "3", *data
    )
    assert "cannot move still:0: " in refused("cluster", "reassign", "still", "--to", "1,9", *data)
    assert "there is no such stream" in refused("cluster", "reassign", "nope", "--to", "1", *data)
    assert "there is no partition 5 in still" in refused(
        "cluster", "reassign", "still", "--to", "1", "--partition", "5", *data
    )
    assert cluster.do("reassign", "still", "--cancel") == {"stream": "still", "cancelled": []}
    assert "there is no node 9" in refused("cluster", "drain", "9", *data)
    assert "cannot remove node 9" in refused("cluster", "remove", "9", *data)


def test_broker_joins_gets_its_share_gives_it_away_and_leaves(cluster: ClusterProcess, tmp_path: Path) -> None:
    ok("streams", "create", "shared", "--partitions", "8", "--replicas", "2", bootstrap=cluster.bootstrap)
    ok("publish", "shared", bootstrap=cluster.bootstrap, stdin="one\ntwo\n")
    arguments = ["--node-id", "4", "--join", cluster.ready["nodes"][0]["peer"], "--peer", f"127.0.0.1:{free_port()}"]
    with BrokerProcess(tmp_path / "four", *arguments, "--key", str(cluster.folder / "cluster.key")):
        cluster.until(lambda told: any(node["id"] == 4 and node["fenced"] is False for node in told["nodes"]))
        assert ok("cluster", "rebalance", "--replicas", "--dry-run", "--data", str(cluster.folder)).out
        cluster.do("rebalance", "--replicas")
        told = cluster.status()
        counts = [node["replicas"] for node in told["nodes"]]
        assert max(counts) - min(counts) <= 1, told
        cluster.do("drain", 4)
        assert node_of(cluster.status(), 4)["replicas"] == 0
        ok("streams", "create", "later", "--partitions", "8", bootstrap=cluster.bootstrap)
        assert node_of(cluster.status(), 4)["replicas"] == 0, "a drained broker gets nothing new"
    cluster.until(lambda told: node_of(told, 4)["fenced"])
    cluster.do("remove", 4)
    assert [node["id"] for node in cluster.status()["nodes"]] == [1, 2, 3]
    read = ok("tail", "shared", "--earliest", "--count", "2", bootstrap=cluster.bootstrap).out
    assert sorted(read.split()) == ["one", "two"]


def test_who_drains_or_levels_out_while_a_partition_moves_changes_nothing_of_where_it_goes(tmp_path: Path) -> None:
    """It has the old replicas beside the new ones meanwhile, and got another one for each old one."""
    with ClusterProcess(tmp_path / "c") as cluster:
        ok("streams", "create", "slow", "--replicas", "1", bootstrap=cluster.bootstrap)
        ok("publish", "slow", bootstrap=cluster.bootstrap, stdin=f"{'x' * 1000}\n" * 1000)
        (old,) = replicas_of(cluster, "slow")[0]
        new, third = sorted({1, 2, 3} - {old})
        cluster.do("reassign", "slow", "--to", new, "--throttle", "1KB", "--no-wait")
        assert replicas_of(cluster, "slow")[0] == [new, old]
        data = ("--data", str(cluster.folder))
        assert "8 partitions" in refused("cluster", "drain", str(old), "--no-wait", *data), "of __consumer_offsets"
        assert replicas_of(cluster, "slow")[0] == [new, old]
        planned = ok("cluster", "rebalance", "--replicas", "--dry-run", "--json", *data).json
        assert all(each["to"] == [third] for each in planned if each["stream"] == "slow")
        cluster.do("unthrottle")
        cluster.until(lambda _: replicas_of(cluster, "slow")[0] == [new])


def test_a_leader_is_elected_on_request_and_refusals_say_why(cluster: ClusterProcess) -> None:
    data = ("--data", str(cluster.folder))
    ok("streams", "create", "voted", "--replicas", "3", bootstrap=cluster.bootstrap)
    assert "is led by" in refused("cluster", "elect", "voted", "0", *data)
    assert "is led by" in refused("cluster", "elect", "voted", "0", "--unclean", *data)
    assert "cannot elect a leader of nope:0" in refused("cluster", "elect", "nope", "0", *data)
    assert "0 partitions got another leader" in ok("cluster", "elect", "--all", "--unclean", *data).out
    assert ok("cluster", "elect", "--all", "--unclean", "--json", *data).json == {"elected": []}
    for words in ((), ("voted",), ("voted", "0", "--all"), ("voted", "--all")):
        assert "name STREAM and PARTITION, or give --all" in refused("cluster", "elect", *words, *data)


def test_replicas_go_round_in_a_circle() -> None:
    assert spread([0, 1, 2], [1, 2, 4], None) == {0: (1, 2, 4), 1: (2, 4, 1), 2: (4, 1, 2)}
    assert spread([5], [7], 1) == {5: (7,)}
