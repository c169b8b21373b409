"""logboom config set, unset and describe."""

from tests.cli.running import ok, refused
from tests.support.server import BrokerProcess


def test_a_setting_is_changed_seen_and_taken_back(broker: BrokerProcess) -> None:
    name = "logboom.kafka.max_waiting_fetches"

    def told() -> dict[str, str]:
        (row,) = ok("config", "describe", name, "--json", bootstrap=broker.kafka).json
        return {key: row[key] for key in ("value", "from", "changes")}

    before = told()
    assert before == {"value": "20000", "from": "default", "changes": "at run time"}
    dry = ok("config", "set", f"{name}=500", "--dry-run", bootstrap=broker.kafka).out
    assert dry == f"could change on broker 1: {name}=500\n"
    assert told() == before
    ok("config", "set", f"{name}=500", bootstrap=broker.kafka)
    assert told() == {**before, "value": "500", "from": "run time"}
    lines = ok("config", "describe", "--changed", bootstrap=broker.kafka).out.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "FROM", "CHANGES"]
    assert [name, "500", "run", "time", "at", "run", "time"] in [line.split() for line in lines]
    assert any(line.startswith("log.dirs ") and line.endswith("start     with a restart") for line in lines)
    taken = ok("config", "unset", name, "--json", bootstrap=broker.kafka).json
    assert taken == {"broker": 1, "unset": [name], "changed": True}
    assert told() == before


def test_a_cluster_wide_default_is_used_where_the_broker_sets_nothing(broker: BrokerProcess) -> None:
    def told() -> tuple[str, str]:
        (row,) = ok("config", "describe", "num.partitions", "--json", bootstrap=broker.kafka).json
        return row["value"], row["from"]

    done = ok("config", "set", "num.partitions=3", "--all", bootstrap=broker.kafka).out
    assert done == "changed on all brokers: num.partitions=3\n"
    assert told() == ("3", "run time, all brokers")
    ok("config", "set", "num.partitions=5", bootstrap=broker.kafka)
    assert told() == ("5", "run time")
    ok("config", "unset", "num.partitions", bootstrap=broker.kafka)
    assert told() == ("3", "run time, all brokers")
    taken = ok("config", "unset", "num.partitions", "--all", "--json", bootstrap=broker.kafka).json
    assert taken == {"broker": None, "unset": ["num.partitions"], "changed": True}
    assert told() == ("1", "default")


def test_the_log_level_changes_at_run_time(broker: BrokerProcess) -> None:
    ok("config", "set", "logboom.log.level=error", bootstrap=broker.kafka)
    ok("streams", "create", "unheard", bootstrap=broker.kafka)
    ok("config", "unset", "logboom.log.level", bootstrap=broker.kafka)
    ok("streams", "create", "heard", bootstrap=broker.kafka)
    log = broker.log_text()
    assert '"stream": "heard"' in log
    assert '"stream": "unheard"' not in log


def test_what_cannot_be_changed_is_told_with_what_to_do(broker: BrokerProcess) -> None:
    text = refused("config", "set", "node.id=7", "num.partitions=0", "num.partition=3", bootstrap=broker.kafka)
    assert "node.id is read when the broker starts: change broker.broker_id in its configuration" in text
    assert "num.partitions='0': should be greater than or equal to 1" in text
    assert "did you mean 'num.partitions'?" in text
    assert "write it as NAME=VALUE" in refused("config", "set", "num.partitions", bootstrap=broker.kafka)
    assert "there is no setting 'x'" in refused("config", "describe", "x", bootstrap=broker.kafka)


def test_a_broker_is_named_by_its_id(broker: BrokerProcess) -> None:
    (row,) = ok("config", "describe", "node.id", "--node", "1", "--json", bootstrap=broker.kafka).json
    assert row["value"] == "1"
    assert "there is no broker 7, or it is down; there are 1" in refused(
        "config", "set", "num.partitions=2", "--node", "7", bootstrap=broker.kafka
    )
    both = refused("config", "set", "num.partitions=2", "--node", "1", "--all", bootstrap=broker.kafka)
    assert "give one of the two" in both
