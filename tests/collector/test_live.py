"""The whole collector as a process, against a real broker: rotation, restarts, pipes, sockets, kill -9 of both."""

import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.collector.live import CollectorProcess, Got, consume, metric, values
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess, free_port
from tests.support.waiting import WAIT_S, until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def write_config(directory: Path, bootstrap: str, inputs: str, more: str = "", client: str = "auto") -> None:
    (directory / "logs").mkdir(exist_ok=True)
    output = f"{{bootstrap: '{bootstrap}', client: {client}}}"
    text = f"data_dir: ./state\nhost: web-1\noutput: {output}\n{more}\ninputs:\n{inputs}"
    (directory / "collector.yaml").write_text(text)


def files_input(stream: str, include: str = "./logs/*.log", more: str = "") -> str:
    return f"  app: {{type: file, stream: {stream}, include: ['{include}'], discover_ms: 100ms{more}}}\n"


def test_files_are_followed_through_rotation_and_restart(broker: BrokerProcess, tmp_path: Path) -> None:
    write_config(tmp_path, broker.kafka, files_input("rotated", more=", rotate_wait_ms: 300ms"))
    log = tmp_path / "logs" / "app.log"
    log.write_bytes(b"1\n2\r\n\xff\n")
    with CollectorProcess(tmp_path, "collector.yaml") as collector:
        until(lambda: len(consume(broker.kafka, "rotated")) == 3, "the first lines")
        log.rename(tmp_path / "logs" / "app.log.1")
        log.write_bytes(b"4\n")
        with open(tmp_path / "logs" / "app.log.1", "ab") as old:
            old.write(b"late")
        until(lambda: len(consume(broker.kafka, "rotated")) == 5, "both sides of a rename")
        shutil.copy(log, tmp_path / "logs" / "app.log.2")
        os.truncate(log, 0)
        with open(log, "ab") as new:
            new.write(b"a line that makes the file longer than it was\n")
        until(lambda: len(consume(broker.kafka, "rotated")) == 6, "what follows a truncation")
        assert collector.sigterm() == 0
        with open(log, "ab") as new:
            new.write(b"while away\n")
        collector.start()
        until(lambda: len(consume(broker.kafka, "rotated")) == 7, "what was written while it was away")
        assert collector.sigterm() == 0
    records = consume(broker.kafka, "rotated")
    assert sorted(values(records)) == sorted(
        [b"1", b"2", b"\xff", b"4", b"late", b"a line that makes the file longer than it was", b"while away"]
    )
    path = str(log).encode()
    assert {record.key for record in records} == {b"web-1:" + path}
    assert records[1].headers["log.file.position"] == b"2"
    assert set(records[0].headers) == {
        "host.name",
        "log.input",
        "log.file.path",
        "log.file.id",
        "log.file.position",
        "log.observed_time_ms",
    }


def test_a_content_is_told_from_the_next_one_that_replaced_it_while_the_collector_was_away(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """Nothing is saved here but at the start, when the file is empty, and before a line is sent."""
    write_config(tmp_path, broker.kafka, files_input("replaced"), "checkpoint_ms: 1h")
    log = tmp_path / "logs" / "app.log"
    log.write_bytes(b"")
    positions = tmp_path / "state" / "positions.json"
    with CollectorProcess(tmp_path, "collector.yaml") as collector:
        until(lambda: positions.exists() and b"app.log" in positions.read_bytes(), "the positions")
        with open(log, "ab") as file:
            file.write(b"before\n")
        until(lambda: len(consume(broker.kafka, "replaced")) == 1, "the first line")
        collector.kill9()
        shutil.copy(log, tmp_path / "logs" / "app.log.1")
        os.truncate(log, 0)
        with open(log, "ab") as file:
            file.write(b"after\n")
        collector.start()
        until(lambda: b"after" in values(consume(broker.kafka, "replaced")), "the line after the rotation")
    records = consume(broker.kafka, "replaced")
    assert values(records) == [b"before", b"before", b"after"]
    check_identities(records)


def test_once_reads_to_the_end_and_stops(broker: BrokerProcess, tmp_path: Path) -> None:
    write_config(tmp_path, broker.kafka, files_input("once", "./**/*.log", ", multiline: {start: '[A-Z]'}"))
    for number in range(20):
        (tmp_path / "logs" / f"{number}.log").write_bytes(b"Error %d\n  at x\nNext\n  no newline at the end" % number)
    with CollectorProcess(tmp_path, "--once", "collector.yaml") as collector:
        assert collector.wait() == 0
    got = values(consume(broker.kafka, "once"))
    assert len(got) == 40, "its own log, which the globs find too, is not among them"
    assert got.count(b"Next\n  no newline at the end") == 20


def test_a_second_collector_on_the_same_directory_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    write_config(tmp_path, broker.kafka, files_input("second"), more=f"http: 127.0.0.1:{(port := free_port())}")
    with CollectorProcess(tmp_path, "collector.yaml"):
        until(lambda: metric(f"127.0.0.1:{port}", "logboom_collector_file_files") >= 0, "the metrics")
        refused = run_logboom(["collect", "collector.yaml"], cwd=tmp_path, timeout_s=WAIT_S)
    assert refused.returncode == 1
    assert b"is in use by another collector (process" in refused.stderr


def test_a_pipe_is_collected_to_its_end(broker: BrokerProcess, tmp_path: Path) -> None:
    lines = b"".join(b"%d\n" % number for number in range(50_000))
    done = subprocess.run(
        [sys.executable, "-m", "logboom.cli", "collect", "--stdin", "piped", "--bootstrap", broker.kafka],
        input=lines,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert values(consume(broker.kafka, "piped")) == lines.split()


def test_check_reports_all_errors(tmp_path: Path) -> None:
    write_config(tmp_path, "x:1", "  a: {type: file, stream: s, includ: [x]}\n  b: {type: stdin}\n")
    done = run_logboom(["collect", "--check", "collector.yaml"], cwd=tmp_path, timeout_s=WAIT_S)
    assert done.returncode == 1
    assert b"did you mean 'include'" in done.stderr
    write_config(tmp_path, "x:1", files_input("s"))
    for more, code in ((", librdkafka: {linger.ms: 5}", 0), (", librdkafka: {no.such.option: 5}", 1)):
        text = (tmp_path / "collector.yaml").read_text().replace("'x:1'", f"'x:1'{more}")
        (tmp_path / "other.yaml").write_text(text)
        done = run_logboom(["collect", "--check", "other.yaml"], cwd=tmp_path, timeout_s=WAIT_S)
        assert done.returncode == code, done.stderr
    assert b"no.such.option" in done.stderr


def test_what_a_socket_took_survives_kill_9_while_the_broker_is_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        http = f"127.0.0.1:{free_port()}"
        sockets = "  lines: {type: unix_stream, stream: taken, path: ./l.sock}\n"
        write_config(tmp_path, broker.kafka, sockets, more=f"http: {http}")
        broker.kill9()
        with CollectorProcess(tmp_path, "collector.yaml") as collector:
            waiting = 'logboom_collector_buffer_waiting_lines{input="lines"}'
            until(lambda: metric(http, waiting) == 0, "the collector")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(str(tmp_path / "l.sock"))
                client.sendall(b"".join(b"%d\n" % number for number in range(20_000)))
            until(lambda: metric(http, waiting) == 20_000, "all lines on disk")
            collector.kill9()
            collector.start()
            until(lambda: metric(http, waiting) == 20_000, "all lines on disk, still")
            broker.restart()
            until(lambda: metric(http, waiting) == 0, "an empty buffer")
            assert collector.sigterm() == 0
        records = consume(broker.kafka, "taken")
        assert [int(value) for value in dict.fromkeys(values(records))] == list(range(20_000))
        check_identities(records)


class Writers:
    """Threads that write numbered lines and rotate their files in both ways.

    No collector can follow a file that it never saw, so a file is rotated once in each life of the collector: while it
    runs, or while it is away after it; and not sooner than the collector looks at it again.
    """

    LOOK_S = 1.0

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.written = [0] * count
        self.lives = 0
        self.rotations = [0] * count
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(count)]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, writer: int) -> None:
        chance = random.Random(writer)
        path = self.directory / f"w{writer}.log"
        next_s = 0.0
        while not self._stop.wait(0.2 * chance.random()):
            with open(path, "ab") as file:
                for _ in range(chance.randrange(1, 200)):
                    file.write(b"%d:%d %s\n" % (writer, self.written[writer], b"x" * chance.randrange(200)))
                    self.written[writer] += 1
            now_s = time.monotonic()
            if self.rotations[writer] < self.lives and now_s >= next_s and chance.random() < 0.2:
                self.rotations[writer] = self.lives
                next_s = now_s + self.LOOK_S
                old = self.directory / f"w{writer}.log.{self.lives}"
                if writer % 2:
                    path.rename(old)
                else:
                    shutil.copyfile(path, old)
                    os.truncate(path, 0)


def check_balance(writers: Writers, got: list[bytes]) -> int:
    """Every line is there, in the order of its writer; how many came more than once."""
    once = dict.fromkeys(value.partition(b" ")[0] for value in got)
    for writer, written in enumerate(writers.written):
        mine = [int(name.split(b":")[1]) for name in once if name.startswith(b"%d:" % writer)]
        assert mine == list(range(written)), f"writer {writer}"
    return len(got) - len(once)


def check_identities(records: list[Got]) -> None:
    """A line that came several times has one identity each time, and no two lines have the same one."""
    lines: dict[tuple[bytes, ...], bytes] = {}
    identities: dict[bytes, tuple[bytes, ...]] = {}
    for record in records:
        identity = tuple(record.headers[name] for name in ("host.name", "log.file.id", "log.file.position"))
        assert lines.setdefault(identity, record.value) == record.value
        assert identities.setdefault(record.value, identity) == identity


@pytest.mark.parametrize(
    ("kills", "victim", "client"),
    [
        (2, "both", "auto"),
        pytest.param(8, "collector", "auto", marks=pytest.mark.slow),
        pytest.param(8, "broker", "auto", marks=pytest.mark.slow),
        pytest.param(20, "both", "auto", marks=pytest.mark.slow),
        pytest.param(4, "collector", "librdkafka", marks=pytest.mark.slow),
        pytest.param(4, "broker", "librdkafka", marks=pytest.mark.slow),
    ],
)
def test_kill_9_loses_no_line_of_a_file(tmp_path: Path, kills: int, victim: str, client: str) -> None:
    chance = random.Random(kills)
    with BrokerProcess(tmp_path / "data") as broker:
        http = f"127.0.0.1:{free_port()}"
        more = f"http: {http}\ncheckpoint_ms: 200ms"
        write_config(tmp_path, broker.kafka, files_input("killed"), more, client)
        with Writers(tmp_path / "logs", 4) as writers, CollectorProcess(tmp_path, "collector.yaml") as collector:
            for _ in range(kills):
                until(lambda: metric(http, "logboom_collector_file_files") >= 4, "the collector at work")
                threading.Event().wait(0.5)
                writers.lives += 1
                threading.Event().wait(2 * chance.random())
                kill_and_restart(victim, broker, collector, chance)
            until(lambda: all(rotations > 0 for rotations in writers.rotations), "a rotation of each file")
            writers.stop()
            until(lambda: metric(http, "logboom_collector_output_records_total") >= 0, "the collector")
            until(
                lambda: len(set(values(consume(broker.kafka, "killed")))) >= sum(writers.written),
                "all lines in the log",
            )
            assert collector.sigterm() == 0
        records = consume(broker.kafka, "killed")
        repeated = check_balance(writers, values(records))
        check_identities(records)
        if victim == "broker":
            assert repeated == 0, "an idempotent producer repeats nothing through restarts of the broker"


def kill_and_restart(victim: str, broker: BrokerProcess, collector: CollectorProcess, chance: random.Random) -> None:
    if victim in ("collector", "both"):
        collector.kill9()
    if victim in ("broker", "both"):
        broker.kill9()
        threading.Event().wait(chance.random())
        broker.restart()
    if victim in ("collector", "both"):
        collector.start()
