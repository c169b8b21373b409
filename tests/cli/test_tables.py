"""`logboom tables`: what a person or a script sees."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

from tests.cli.running import logboom, ok, refused
from tests.support.commands import LogboomProcess
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S
from tests.table.support import produce

Name = Callable[[], str]


def test_the_life_of_a_key(broker: BrokerProcess, name: Name) -> None:
    table, at = name(), {"bootstrap": broker.kafka}
    assert f"`logboom tables create {table}` makes it" in refused("tables", "get", table, "k", **at)
    assert ok("tables", "create", table, **at).out == f"created {table}\n"
    assert "a stream of this name exists" in refused("tables", "create", table, **at)
    assert ok("tables", "create", table, "--if-not-exists", **at).out == f"exists: {table}\n"
    assert "no value of key 'k'" in refused("tables", "get", table, "k", **at)
    assert "has no keys yet" in ok("tables", "list", table, **at).err
    assert ok("tables", "put", table, "k", "one", "--expect", "absent", **at).out == "k has version 0\n"
    got = ok("tables", "get", table, "k", **at)
    assert got.out == "one"
    assert got.err.startswith("k: version 0, ")
    assert ok("tables", "put", table, "k", "-", stdin=b"\xff\x00", **at).out == "k has version 1\n"
    shown = ok("tables", "get", table, "k", "--json", **at).json
    assert (shown["key"], shown["value_base64"], shown["version"], shown["partition"]) == ("k", "/wA=", 1, 0)
    assert "it has version 1: another writer was first" in refused(
        "tables", "put", table, "k", "two", "--expect", "0", **at
    )
    ok("tables", "put", table, "other", "@@home", **at)
    rows = ok("tables", "list", table, **at).out.splitlines()
    assert [row.split()[:3] for row in rows] == [["KEY", "VERSION", "BYTES"], ["k", "1", "2"], ["other", "2", "5"]]
    listed = ok("tables", "list", table, "--prefix", "o", "--json", **at).json
    assert [(each["key"], each["value"]) for each in listed] == [("other", "@home")]
    assert "was first" in refused("tables", "delete", table, "k", "--expect", "0", **at)
    assert ok("tables", "delete", table, "k", "--expect", "1", **at).out == "deleted k\n"
    assert "nothing to delete" in ok("tables", "delete", table, "k", **at).out
    assert ok("tables", "delete", table, "k", "--json", **at).json == {"table": table, "key": "k", "deleted": False}


def test_documents(broker: BrokerProcess, name: Name, tmp_path: Path) -> None:
    table, at = name(), {"bootstrap": broker.kafka}
    ok("tables", "create", table, **at)
    (tmp_path / "doc.json").write_text('{"limit": 5, "by": {"eu": 1}}')
    ok("tables", "put", table, "doc", f"@{tmp_path}/doc.json", **at)
    merged = ok("tables", "put", table, "doc", '{"by": {"us": 2}, "limit": null}', "--merge", "--json", **at).json
    assert json.loads(merged["value"]) == {"by": {"eu": 1, "us": 2}}
    assert "nothing to remove" in ok("tables", "put", table, "new", '{"a": null}', "--merge", **at).out
    ok("tables", "put", table, "text", "no JSON", **at)
    assert "the value of key 'text' is not JSON" in refused("tables", "put", table, "text", "{}", "--merge", **at)
    assert "the patch is not JSON" in refused("tables", "put", table, "doc", "{", "--merge", **at)
    assert "is a JSON object" in refused("tables", "put", table, "doc", "[1]", "--merge", **at)
    assert "leave out --expect" in refused("tables", "put", table, "doc", "{}", "--merge", "--expect", "1", **at)
    assert "cannot read /nowhere" in refused("tables", "put", table, "doc", "@/nowhere", **at)


def test_watching(broker: BrokerProcess, name: Name) -> None:
    table, at = name(), {"bootstrap": broker.kafka}
    ok("tables", "create", table, **at)
    records = [(b"a-1", b"x" * 300), (b"b-1", b"1"), (b"a-2", b"line\nline"), (b"a-3", b"")]
    produce(broker.kafka, table, list(records))
    lines = ok("tables", "watch", table, "--prefix", "a-", "--count", "3", **at).out.splitlines()
    assert lines == [f"a-1  0  {'x' * 200}...", "a-2  2  line\\nline", "a-3  3  "]
    changes = ok("tables", "watch", table, "--count", "4", "--json", **at).json_lines
    assert [(each["key"], each["version"], each["deleted"]) for each in changes] == [
        ("a-1", 0, False),
        ("b-1", 1, False),
        ("a-2", 2, False),
        ("a-3", 3, False),
    ]
    assert [each["position"] is None for each in changes] == [True, True, True, False]
    ok("tables", "delete", table, "b-1", **at)
    later = ok("tables", "watch", table, "--since", changes[-1]["position"], "--count", "1", "--json", **at)
    assert [(each["key"], each["deleted"]) for each in later.json_lines] == [("b-1", True)]
    assert later.err == ""
    lost = ok("tables", "watch", table, "--since", "1;other;0;0=1-0", "--count", "1", "--json", **at)
    assert "this is the whole table" in lost.err
    assert "is no position of a table" in refused("tables", "watch", table, "--since", "1", **at)


def test_keys_in_two_partitions(broker: BrokerProcess, name: Name) -> None:
    table, at = name(), {"bootstrap": broker.kafka}
    ok("tables", "create", table, "--partitions", "2", **at)
    for partition in (0, 1):
        produce(broker.kafka, table, [(b"k", b"%d" % partition)], partition=partition)
    assert "partitions 0 (version 0) and 1 (version 0)" in refused("tables", "get", table, "k", **at)
    assert "1 key with values in more than one partition" in ok("tables", "list", table, **at).err
    assert "more than one partition" in ok("tables", "watch", table, "-n", "1", **at).err
    assert ok("tables", "delete", table, "k", "--partition", "0", **at).out == "deleted k\n"
    assert ok("tables", "get", table, "k", **at).out == "1"


def test_options_that_make_no_sense(broker: BrokerProcess, name: Name) -> None:
    table, at = name(), {"bootstrap": broker.kafka}
    ok("streams", "create", table, **at)
    for command in (["get", table, "k"], ["list", table], ["put", table, "k", "v"], ["watch", table]):
        assert "is not a table, because it is not compacted" in refused("tables", *command, **at)
    assert "a version is a number" in refused("tables", "put", table, "k", "v", "--expect", "new", **at)
    assert "nothing to delete" in refused("tables", "delete", table, "k", "--expect", "absent", **at)
    assert "give the unit" in refused("tables", "get", table, "k", "--timeout", "5", **at)
    assert "write it as KEY=VALUE" in refused("tables", "create", "x", "--config", "novalue", **at)
    assert "retension.ms" in refused("tables", "create", "x", "--config", "retension.ms=1", **at)
    assert "makes no table" in refused("tables", "create", "x", "--config", "cleanup.policy=delete", **at)
    assert "there is no table" in refused("tables", "get", "x", "k", **at)
    ok("tables", "create", name(), "--config", "cleanup.policy=compact,delete", **at)
    assert "no broker answers" in refused("tables", "get", table, "k", bootstrap="127.0.0.1:1")
    assert logboom("tables", "watch", table, "-n", "0").code == 2


def test_of_two_processes_that_expect_the_same_version_one_wins(broker: BrokerProcess, name: Name) -> None:
    table, version = name(), "absent"
    ok("tables", "create", table, bootstrap=broker.kafka)
    for round_ in range(3):
        command = ["tables", "put", table, "k", f"{round_}", "--expect", version, "--bootstrap", broker.kafka]
        racing = [LogboomProcess(command, stdout=PIPE, stderr=PIPE) for _ in range(2)]
        ended = [finish(process) for process in racing]
        assert sorted(code for code, _, _ in ended) == [0, 1], ended
        [won] = [out for code, out, _ in ended if code == 0]
        [lost] = [err for code, _, err in ended if code == 1]
        version = won.split()[-1]
        assert f"it has version {version}: another writer was first" in lost


def finish(process: LogboomProcess) -> tuple[int, str, str]:
    """Exit code and both outputs of a command that prints little."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err:
        code = process.wait(WAIT_S)
        return code, out.read().decode(), err.read().decode()
