"""What others have written is shown, and does nothing to the terminal; what is for programs is exact."""

import os
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.running import logboom, ok
from tests.support.commands import LogboomProcess, run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

Name = Callable[[], str]

HOSTILE = b"\x1b]0;title\x07\x1b[2J\r\x7f\xc2\x9b2J\xe2\x80\xae\xff"
"""An escape sequence for the window's title, one that clears the screen, DEL, the same in C1, a turn of the direction
of writing, a byte that is not UTF-8."""
SHOWN = r"\x1b]0;title\x07\x1b[2J\r\x7f\x9b2J\u202e\xff"
TEXT = HOSTILE[:-1].decode()


def written(broker: BrokerProcess, stream: str, *settings: str) -> None:
    """A stream with one such record."""
    ok("streams", "create", stream, *settings, bootstrap=broker.kafka)
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce(stream, HOSTILE, HOSTILE, headers=[("h", HOSTILE)])
    assert producer.flush(WAIT_S) == 0


def piped(broker: BrokerProcess, *arguments: str) -> bytes:
    done = run_logboom(arguments, timeout_s=WAIT_S, env={**os.environ, "LOGBOOM_BOOTSTRAP": broker.kafka})
    assert done.returncode == 0, done
    return done.stdout


def on_a_terminal(broker: BrokerProcess, *arguments: str) -> str:
    """What a command prints on a terminal, which ends lines with CR and LF."""
    master, slave = os.openpty()
    try:
        with open(os.devnull, "rb") as given, open(slave, "wb", buffering=0) as terminal:
            environment = {**os.environ, "LOGBOOM_BOOTSTRAP": broker.kafka}
            process = LogboomProcess(arguments, stdin=given, stdout=terminal, stderr=terminal, env=environment)
            code = process.wait(WAIT_S)
            shown = os.read(master, 1 << 16)  # it has room for a few lines
    finally:
        os.close(master)
    assert code == 0, shown
    return shown.decode()


def test_tail_gives_a_pipe_the_bytes_and_a_terminal_escapes(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    written(broker, stream)
    assert piped(broker, "tail", stream) == HOSTILE + b"\n"
    assert piped(broker, "tail", stream, "--verbose").endswith(HOSTILE + b"  " + HOSTILE + b"\n")
    assert on_a_terminal(broker, "tail", stream) == SHOWN + "\r\n"
    assert on_a_terminal(broker, "tail", stream, "--verbose").endswith(f"{SHOWN}  {SHOWN}\r\n")


def test_lines_and_tabs_of_a_value_stay_on_a_terminal(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--config", "cleanup.policy=compact", bootstrap=broker.kafka)
    ok("tables", "put", stream, "k", "a\tb\n\x1bc", bootstrap=broker.kafka)
    assert piped(broker, "tables", "get", stream, "k") == b"a\tb\n\x1bc"
    told = on_a_terminal(broker, "tables", "get", stream, "k")
    assert "a       b\r\n\\x1bc\r\n" in told.replace("\t", "       ")


def test_a_table_is_listed_watched_and_read(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    written(broker, stream, "--config", "cleanup.policy=compact")
    assert SHOWN in ok("tables", "list", stream, bootstrap=broker.kafka).out
    watched = ok("tables", "watch", stream, "--count", "1", bootstrap=broker.kafka)
    assert watched.out == f"{SHOWN}  0  {SHOWN}\n"


def test_json_is_exact_and_printable(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    ok("streams", "create", stream, "--config", "cleanup.policy=compact", bootstrap=broker.kafka)
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce(stream, TEXT.encode() + "ü\U0001f600".encode(), b"k")
    assert producer.flush(WAIT_S) == 0
    for command in (("tail", stream), ("tables", "get", stream, "k"), ("tables", "watch", stream, "--count", "1")):
        ran = ok(*command, "--json", bootstrap=broker.kafka)
        assert ran.json["value"] == TEXT + "ü\U0001f600"
        assert ran.out.rstrip("\n").isprintable()
        assert "ü\U0001f600" in ran.out


def test_the_dump_of_a_log(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    written(broker, stream)
    data = str(broker.data)
    assert ok("log", "dump", data, "--stream", stream).out.endswith(f"  {SHOWN}  {SHOWN}\n")
    told = ok("log", "dump", data, "--stream", stream, "--json")
    assert told.out.rstrip("\n").isprintable()
    assert {"value_base64", "key_base64"} <= told.json.keys()


def test_names_of_groups(broker: BrokerProcess, name: Name) -> None:
    stream = name()
    written(broker, stream)
    group = f"{stream}\x1b[2J"
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": group})
    consumer.commit(offsets=[TopicPartition(stream, 0, 1)], asynchronous=False)
    consumer.close()
    assert f"{stream}\\x1b[2J" in ok("groups", "list", bootstrap=broker.kafka).out
    assert ok("groups", "describe", group, bootstrap=broker.kafka).out.startswith(f"{stream}\\x1b[2J  ")
    missing = logboom("groups", "describe", "none\x1b[2J", bootstrap=broker.kafka)
    assert "\x1b" not in missing.out + missing.err
