"""logboom quotas."""

from collections.abc import Callable

from tests.cli.running import logboom, ok, refused
from tests.support.server import BrokerProcess

Name = Callable[[], str]


def test_quotas_are_set_listed_and_removed(broker: BrokerProcess, name: Name) -> None:
    client, at = name(), broker.kafka
    assert "no quotas" in ok("quotas", "list", bootstrap=at).err
    ran = ok("quotas", "set", "--client", client, "--produce", "10MB", "--requests", "12.5", bootstrap=at)
    assert ran.out == f"set for client-id {client}: producer_byte_rate, request_percentage\n"
    ok("quotas", "set", "--default", "--fetch", "1MiB", bootstrap=at)
    ok("quotas", "set", "--default", "--addresses", "--connections", "100", bootstrap=at)
    assert ok("quotas", "list", "--json", bootstrap=at).json == [
        {"entity": {"client-id": None}, "quotas": {"consumer_byte_rate": 1_048_576.0}},
        {"entity": {"client-id": client}, "quotas": {"producer_byte_rate": 1e7, "request_percentage": 12.5}},
        {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 100.0}},
    ]
    lines = ok("quotas", "list", bootstrap=at).out.splitlines()
    assert [line.split() for line in lines] == [
        ["WHOSE", "PRODUCE", "FETCH", "REQUESTS", "CONNECTIONS"],
        ["client-id", "(default)", "-", "1.0", "MB/s", "-", "-"],
        ["client-id", client, "10.0", "MB/s", "-", "12.5", "%", "-"],
        ["ip", "(default)", "-", "-", "-", "100/s"],
    ]
    ok("quotas", "remove", "--client", client, "--requests", bootstrap=at)
    ok("quotas", "remove", "--default", "--addresses", bootstrap=at)
    ran = ok("quotas", "remove", "--default", "--json", bootstrap=at)
    assert ran.json["entity"] == {"client-id": None}
    assert ok("quotas", "list", "--json", bootstrap=at).json == [
        {"entity": {"client-id": client}, "quotas": {"producer_byte_rate": 1e7}}
    ]
    ok("quotas", "remove", "--client", client, bootstrap=at)


def test_a_dry_run_leaves_it(broker: BrokerProcess, name: Name) -> None:
    client = name()
    ok("quotas", "set", "--client", client, "--produce", "1", "--dry-run", bootstrap=broker.kafka)
    assert client not in ok("quotas", "list", bootstrap=broker.kafka).out


def test_what_is_wrong_is_said(broker: BrokerProcess) -> None:
    at = broker.kafka
    assert "name who it is for" in refused("quotas", "set", "--produce", "1", bootstrap=at)
    assert "name what to set" in refused("quotas", "set", "--default", bootstrap=at)
    assert "expected a whole number" in refused("quotas", "set", "--default", "--produce", "0", bootstrap=at)
    assert "a size such as" in refused("quotas", "set", "--default", "--produce", "much", bootstrap=at)
    assert "no quota for ip" in refused("quotas", "set", "--address", "10.0.0.1", "--fetch", "1", bootstrap=at)
    assert logboom("quotas", "list", "--bootstrap", "127.0.0.1:1").code == 1
