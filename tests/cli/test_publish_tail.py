"""logboom publish and logboom tail: what goes in comes out, from wherever one starts to read."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.running import logboom, ok, refused
from tests.support.commands import LogboomProcess, run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

Name = Callable[[], str]


def test_lines_come_out_as_they_went_in(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    lines = [b"one", b"", "zw\u00f6lf \u2603".encode(), b"\xff\xfe raw", b"last without newline"]
    sent = ok("publish", stream, bootstrap=broker.kafka, stdin=b"\n".join(lines))
    assert sent.out == ""
    assert f"5 records (39 B) acknowledged in {stream}" in sent.err
    done = run_logboom(["tail", stream, "--earliest", "-b", broker.kafka], timeout_s=WAIT_S)
    assert done.stdout == b"".join(line + b"\n" for line in lines)


def test_files_keys_headers_and_partitions(broker: BrokerProcess, name: Name, tmp_path: Path) -> None:
    stream = name()
    ok("streams", "create", stream, "--partitions", "2", bootstrap=broker.kafka)
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text(f"from {number}\n")
    files = [str(tmp_path / "1.txt"), str(tmp_path / "2.txt")]
    report = ok(
        "publish", stream, *files, "--key", "k", "-H", "a=b=c", "-H", "empty=", "--partition", "1", "--json",
        bootstrap=broker.kafka,
    ).json  # fmt: skip
    assert report["records"] == 2
    assert report["offsets"] == {"1": {"first": 0, "last": 1}}
    records = ok("tail", stream, "--earliest", "--json", bootstrap=broker.kafka).json_lines
    assert [(each["value"], each["key"], each["partition"]) for each in records] == [
        ("from 1", "k", 1),
        ("from 2", "k", 1),
    ]
    assert records[0]["headers"] == [{"name": "a", "value": "b=c"}, {"name": "empty", "value": ""}]


def test_json_lines_give_the_key(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    lines = '{"user": {"id": "u1"}}\n{"user": {"id": 2}}\n'
    ok("publish", stream, "--json-lines", "--key-field", "user.id", bootstrap=broker.kafka, stdin=lines)
    records = ok("tail", stream, "--json", bootstrap=broker.kafka).json_lines
    assert [each["key"] for each in records] == ["u1", "2"]
    assert [each["value"] for each in records] == lines.splitlines()


def test_line_that_is_no_json_stops_and_says_how_far_it_came(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    said = refused("publish", stream, "--json-lines", bootstrap=broker.kafka, stdin='{"a": 1}\nnope\n{"a": 2}\n')
    assert "standard input, line 2 is not JSON" in said
    assert "acknowledged before that: 1 record" in said
    assert ok("tail", stream, bootstrap=broker.kafka).out == '{"a": 1}\n'
    said = refused("publish", stream, "--key-field", "user.id", bootstrap=broker.kafka, stdin='{"user": 1}\n')
    assert "line 1 has no field 'user.id'" in said


def test_record_that_is_too_large_is_an_error(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--config", "max.message.bytes=1000", bootstrap=broker.kafka)
    said = refused("publish", stream, "--compression", "none", bootstrap=broker.kafka, stdin="x" * 5_000)
    assert "0 of 1 record reached" in said
    assert "larger than the stream accepts" in said


def test_record_without_a_key_for_a_compacted_stream_is_an_error_that_says_so(
    broker: BrokerProcess, name: Name
) -> None:
    stream, at = name(), {"bootstrap": broker.kafka}
    ok("streams", "create", stream, "--config", "cleanup.policy=compact", **at)
    assert "accepts only records with a key" in refused("publish", stream, stdin="no key\n", **at)
    ok("publish", stream, "--key", "k", stdin="a key\n", **at)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key", "a", "--key-field", "b"], "exclude each other"),
        (["-H", "a"], "KEY=VALUE"),
        (["/nowhere/x"], "cannot read /nowhere/x: No such file or directory"),
        (["--compression", "zip"], "--compression zip"),
    ],
    ids=["keys", "header", "file", "codec"],
)
def test_publish_that_makes_no_sense_is_refused(
    broker: BrokerProcess, name: Name, arguments: list[str], said: str
) -> None:
    assert said in refused("publish", name(), *arguments, bootstrap=broker.kafka, stdin="x\n")


def test_tail_starts_where_it_is_told(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("publish", stream, bootstrap=broker.kafka, stdin="".join(f"{number}\n" for number in range(30)))

    def read(*arguments: str) -> list[int]:
        return [int(line) for line in ok("tail", stream, *arguments, bootstrap=broker.kafka).out.split()]

    assert read() == list(range(20, 30))
    assert read("--count", "3") == [27, 28, 29]
    assert read("--earliest") == list(range(30))
    assert read("--earliest", "-n", "2") == [0, 1]
    assert read("--offset", "25") == [25, 26, 27, 28, 29]
    assert read("--offset", "30") == []
    assert read("--since", "1h") == list(range(30))
    assert read("--since", "0ms") == []


def test_tail_of_several_partitions_shows_the_last_by_time(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--partitions", "3", bootstrap=broker.kafka)
    for number in range(6):
        ok("publish", stream, "--partition", str(number % 3), bootstrap=broker.kafka, stdin=f"{number}\n")
    assert ok("tail", stream, "-n", "4", bootstrap=broker.kafka).out.split() == ["2", "3", "4", "5"]
    assert ok("tail", stream, "--partition", "1", bootstrap=broker.kafka).out.split() == ["1", "4"]
    verbose = ok("tail", stream, "-n", "1", "-v", bootstrap=broker.kafka).out.split()
    assert (verbose[0], verbose[2:]) == ("2:1", ["-", "5"])


def test_tail_of_a_subject_shows_what_was_published_there(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    for line, subject in ((b"1", "orders.eu.1"), (b"2", "orders.us.1"), (b"3", "orders.eu.2"), (b"4", "orders.eu")):
        ok("publish", stream, "-H", f"logboom-subject={subject}", bootstrap=broker.kafka, stdin=line)
    ok("publish", stream, bootstrap=broker.kafka, stdin=b"5")
    assert ok("tail", stream, "--subject", "orders.eu.*", bootstrap=broker.kafka).out == "1\n3\n"
    assert ok("tail", stream, "--subject", "orders.eu.*", "-n", "1", bootstrap=broker.kafka).out == "3\n"
    assert ok("tail", stream, "--subject", "*.us.>", "--earliest", bootstrap=broker.kafka).out == "2\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--offset", "7"], "offset 7 is not in partition 0 of"),
        (["--since", "30"], "give the unit"),
        (["--since", "soon"], "is not a duration"),
        (["--earliest", "--since", "1h"], "exclude each other"),
        (["--partition", "4"], "has no partition 4"),
    ],
    ids=["offset", "unit", "time", "two starts", "partition"],
)
def test_tail_that_makes_no_sense_is_refused(
    broker: BrokerProcess, name: Name, arguments: list[str], said: str
) -> None:
    stream = name()
    ok("publish", stream, bootstrap=broker.kafka, stdin="x\n")
    assert said in refused("tail", stream, *arguments, bootstrap=broker.kafka)


def test_tail_creates_no_stream(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    assert f"there is no stream '{stream}'" in refused("tail", stream, bootstrap=broker.kafka)
    assert stream not in ok("streams", "list", bootstrap=broker.kafka).out


def following(broker: BrokerProcess, stream: str, *arguments: str) -> LogboomProcess:
    command = ["tail", stream, "-b", broker.kafka, *arguments]
    return LogboomProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_follow_shows_what_arrives_until_interrupted(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("publish", stream, bootstrap=broker.kafka, stdin="old\n")
    with following(broker, stream, "--follow") as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"old\n"
        ok("publish", stream, bootstrap=broker.kafka, stdin="new\n")
        assert reader.stdout.readline() == b"new\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(WAIT_S) == 0
        assert reader.stderr.read() == b""


def test_follow_goes_on_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        ok("publish", "s", bootstrap=broker.kafka, stdin="old\n")
        with following(broker, "s", "--follow", "--count", "2") as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"old\n"
            broker.restart()
            ok("publish", "s", bootstrap=broker.kafka, stdin="new\n")
            assert reader.stdout.readline() == b"new\n"
            assert reader.wait(WAIT_S) == 0


def test_reader_that_has_seen_enough_is_no_error(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("publish", stream, bootstrap=broker.kafka, stdin="".join(f"{number} {'x' * 200}\n" for number in range(20_000)))
    with following(broker, stream, "--earliest") as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline().startswith(b"0 ")
        reader.stdout.close()
        assert reader.wait(WAIT_S) == 0
        assert reader.stderr.read() == b""


def test_publish_is_told_when_the_broker_goes_away(tmp_path: Path) -> None:
    """Every line acknowledged, or an error: nothing in between."""
    with BrokerProcess(tmp_path / "data") as broker:
        ok("publish", "s", bootstrap=broker.kafka, stdin="x\n")
        reading, writing = os.pipe()
        publish = ["publish", "s", "-b", broker.kafka, "--timeout", "2s"]
        with LogboomProcess(publish, stdin=reading, stderr=subprocess.PIPE) as sender:
            os.close(reading)
            os.write(writing, b"first\n")
            while ok("tail", "s", bootstrap=broker.kafka).out != "x\nfirst\n":
                pass
            broker.kill9()
            os.write(writing, b"second\n")
            os.close(writing)
            assert sender.wait(WAIT_S) == 1
            assert sender.stderr is not None
            assert b"1 of 2 records reached stream 's'" in sender.stderr.read()


def test_publish_of_nothing_is_no_error(broker: BrokerProcess, name: Name) -> None:
    assert logboom("publish", name(), bootstrap=broker.kafka).code == 0
