"""logboom streams."""

from collections.abc import Callable

from tests.cli.running import ok, refused
from tests.support.server import BrokerProcess

Name = Callable[[], str]


def test_created_listed_described_and_deleted(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    made = ok(
        "streams", "create", stream, "--partitions", "3", "--config", "segment.bytes=16777216", bootstrap=broker.kafka
    )
    assert made.out == f"created {stream} (3 partitions)\n"
    ok("publish", stream, bootstrap=broker.kafka, stdin="a\nb\n")
    listed = ok("streams", "list", "--json", bootstrap=broker.kafka).json
    assert {"stream": stream, "partitions": 3, "records": 2} in listed
    described = ok("streams", "describe", stream, "--json", bootstrap=broker.kafka).json
    assert len(described["partitions"]) == 3
    assert sum(each["records"] for each in described["partitions"]) == 2
    assert described["config"]["segment.bytes"] == {"value": "16777216", "set": True}
    assert described["config"]["logboom.flush"]["set"] is False
    assert "yes" in refused("streams", "delete", stream, bootstrap=broker.kafka)
    ok("streams", "delete", stream, "--yes", bootstrap=broker.kafka)
    assert stream not in ok("streams", "list", bootstrap=broker.kafka).out


def test_tables_are_for_people(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--partitions", "2", bootstrap=broker.kafka)
    text = ok("streams", "describe", stream, bootstrap=broker.kafka).out.splitlines()
    assert text[0].startswith(f"{stream}  id ")
    assert text[2].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "FIRST", "END", "RECORDS"]
    assert text[3].split()[0] == "0"
    lines = ok("streams", "list", bootstrap=broker.kafka).out.splitlines()
    assert lines[0].split() == ["STREAM", "PARTITIONS", "RECORDS"]
    assert [stream, "2", "0"] in [line.split() for line in lines]
    assert "__consumer_offsets" in ok("streams", "list", "--all", bootstrap=broker.kafka).out


def test_of_a_compacted_stream_it_is_not_known_how_many_records_are_left(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--config", "cleanup.policy=compact,delete", bootstrap=broker.kafka)
    empty = ok("streams", "describe", stream, bootstrap=broker.kafka).out.splitlines()
    assert empty[3].split()[-3:] == ["0", "0", "0"]
    ok("publish", stream, "--key", "k", bootstrap=broker.kafka, stdin="a\nb\n")
    line = ok("streams", "describe", stream, bootstrap=broker.kafka).out.splitlines()[3]
    assert line.endswith("  up to 2")
    ok("streams", "alter", stream, "--config", "cleanup.policy=delete", bootstrap=broker.kafka)
    assert ok("streams", "describe", stream, bootstrap=broker.kafka).out.splitlines()[3].endswith("  2")


def test_replicas_are_asked_for_and_shown(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--replicas", "1", bootstrap=broker.kafka)
    described = ok("streams", "describe", stream, "--json", bootstrap=broker.kafka).json
    assert [(each["leader"], each["replicas"]) for each in described["partitions"]] == [(1, [1])]
    assert "replication factor of 3" in refused("streams", "create", name(), "--replicas", "3", bootstrap=broker.kafka)


def test_a_stream_may_be_created_again_with_what_it_has(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    asked = ("streams", "create", stream, "--config", "retention.ms=5000", "--subject", f"{stream}.>")
    ok(*asked, "--partitions", "2", bootstrap=broker.kafka)
    for again in ((), ("--partitions", "2", "--replicas", "1")):
        assert ok(*asked, *again, "--json", bootstrap=broker.kafka).json == {
            "stream": stream,
            "partitions": 2,
            "created": False,
        }
    other = ("streams", "create", stream, "--partitions", "3", "--replicas", "2", "--config", "retention.ms=7000")
    differences = "2 partitions (not 3) and 1 replica (not 2) and retention.ms=5000 (not 7000)"
    assert f"{stream!r} exists, with {differences}: " in refused(*other, bootstrap=broker.kafka)
    left = ok(*other, "--if-not-exists", bootstrap=broker.kafka)
    assert left.out == f"exists: {stream} (2 partitions)\n"
    assert f"with {differences}; it is left as it is" in left.err


def test_what_cannot_be_created_is_explained(broker: BrokerProcess, name: Name) -> None:
    assert "did you mean 'segment.bytes'" in refused(
        "streams", "create", name(), "--config", "segment.byte=1", bootstrap=broker.kafka
    )
    assert "KEY=VALUE" in refused("streams", "create", name(), "--config", "x", bootstrap=broker.kafka)
    assert "characters" in refused("streams", "create", "a/b", bootstrap=broker.kafka)


def test_stream_that_is_not_there_is_named(broker: BrokerProcess) -> None:
    for command in (["describe", "nope"], ["delete", "nope", "--yes"]):
        assert "there is no stream 'nope'" in refused("streams", *command, bootstrap=broker.kafka)


def test_a_stream_is_attached_to_subjects_and_detached(broker: BrokerProcess, name: Name) -> None:
    stream, subject = name(), name()
    options = ["--subject", f"{subject}.eu.>", "--subject", f"{subject}.us.*", "--key", "token:2", "--ack", "leader"]
    ok("streams", "create", stream, *options, bootstrap=broker.kafka)

    def attachment() -> dict[str, str]:
        told = ok("streams", "describe", stream, "--json", bootstrap=broker.kafka).json["config"]
        return {key[13:]: entry["value"] for key, entry in told.items() if key.startswith("logboom.nats.")}

    described = attachment()
    assert described["subjects"] == f"{subject}.eu.>,{subject}.us.*"
    assert (described["key"], described["ack"], described["partitioner"]) == ("token:2", "leader", "key")
    for _ in range(2):
        ok("streams", "alter", stream, "--subject", f"{subject}.*", "--group", "g", bootstrap=broker.kafka)
    assert (attachment()["subjects"], attachment()["group"]) == (f"{subject}.*", "g")
    for _ in range(2):
        ok("streams", "alter", stream, "--no-subject", bootstrap=broker.kafka)
    assert attachment()["subjects"] == ""
    wrong = refused("streams", "alter", stream, "--subject", "orders.>.eu", bootstrap=broker.kafka)
    assert "has '>' before its last token" in wrong
    assert "contradict" in refused("streams", "alter", stream, "--subject", "a", "--no-subject", bootstrap=broker.kafka)


def test_settings_are_changed_and_given_back(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--config", "segment.ms=5000", bootstrap=broker.kafka)

    def settings() -> dict[str, str]:
        told = ok("streams", "describe", stream, "--json", bootstrap=broker.kafka).json["config"]
        return {key: entry["value"] for key, entry in told.items() if entry["set"]}

    changes = ["--config", "retention.ms=60000", "--config", "logboom.retention.messages=7", "--delete", "segment.ms"]
    tried = ok("streams", "alter", stream, *changes, "--dry-run", bootstrap=broker.kafka).out
    assert tried.startswith(f"could change {stream}: retention.ms=60000")
    assert settings() == {"segment.ms": "5000"}
    told = ok("streams", "alter", stream, *changes, bootstrap=broker.kafka).out
    assert told == (
        f"changed {stream}: retention.ms=60000, logboom.retention.messages=7, segment.ms back to its default\n"
    )
    assert settings() == {"retention.ms": "60000", "logboom.retention.messages": "7"}
    again = ok("streams", "alter", stream, "--delete", "retention.ms", "--json", bootstrap=broker.kafka).json
    assert again == {"stream": stream, "set": {}, "default": ["retention.ms"], "changed": True}
    assert settings() == {"logboom.retention.messages": "7"}


def test_settings_that_cannot_be_are_explained(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, bootstrap=broker.kafka)

    def refusal(*arguments: str) -> str:
        return refused("streams", "alter", *arguments, bootstrap=broker.kafka)

    assert "did you mean 'retention.ms'" in refusal(stream, "--config", "retention.m=1")
    assert "expected a whole number" in refusal(stream, "--config", "retention.ms=week")
    assert "did you mean" in refusal(stream, "--delete", "retention.m")
    assert "--config KEY=VALUE" in refusal(stream)
    assert "there is no stream 'nope'" in refusal("nope", "--config", "retention.ms=1")
    assert "is internal" in refusal("__consumer_offsets", "--config", "retention.ms=1")
