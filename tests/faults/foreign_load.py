"""Load on a cluster from other clients than librdkafka, each in processes of its own: a producer and a group of two.

Kafka's own VerifiableProducer and VerifiableConsumer, which its system tests use, say on their output what they were
told; the programs for other clients print the same lines. What they say is checked as in cluster_load.
"""

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.faults.cluster_load import read_all
from tests.support.waiting import WAIT_S

from logboom.bench.servers.kafka import java_command

RECORDS_PER_S = 300
MEMBERS = 2
_JVM = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_AIO = Path(__file__).parent.parent / "clients" / "python" / "aio_verifiable.py"
_PRODUCER = """
retries=2147483647
enable.idempotence=true
delivery.timeout.ms=120000
request.timeout.ms=5000
linger.ms=2
reconnect.backoff.max.ms=500
"""
_CONSUMER = "reconnect.backoff.max.ms=500\nrequest.timeout.ms=11000\n"
Commands = Callable[[Path, str, str], list[list[str]]]
"""Directory, bootstrap servers, stream -> the command of the producer, then those of the group's members."""


def java(directory: Path, bootstrap: str, stream: str) -> list[list[str]]:
    """Kafka's own clients; the group is a cooperative-sticky one."""
    producer, consumer = directory / "producer.properties", directory / "consumer.properties"
    producer.write_text(_PRODUCER)
    consumer.write_text(_CONSUMER)
    where = ("--bootstrap-server", bootstrap, "--topic", stream)

    def tool(name: str, *arguments: str) -> list[str]:
        return java_command(f"org.apache.kafka.tools.Verifiable{name}", *where, *arguments, options=_JVM)

    sticky = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    group = ("--group-id", f"{stream}-group", "--session-timeout", "10000", "--assignment-strategy", sticky)
    members = [tool("Consumer", *group, "--consumer.config", str(consumer)) for _ in range(MEMBERS)]
    return [tool("Producer", "--throughput", str(RECORDS_PER_S), "--producer.config", str(producer)), *members]


def aiokafka(directory: Path, bootstrap: str, stream: str) -> list[list[str]]:
    """aiokafka, with the assignor that it takes by itself."""
    program = [sys.executable, str(_AIO)]
    members = [[*program, "consume", bootstrap, stream, f"{stream}-group"] for _ in range(MEMBERS)]
    return [[*program, "produce", bootstrap, stream, str(RECORDS_PER_S)], *members]


@dataclass
class _Member:
    """What a member of the group does, partition by partition."""

    next_offset: dict[int, int] = field(default_factory=dict)
    floor: dict[int, int] = field(default_factory=dict)
    """What was committed when it was given a partition."""


class ForeignLoad:
    """Life: `with`; `check` is for afterwards. A `cluster_load.Load`."""

    def __init__(self, commands: Commands, directory: Path, bootstrap: str, stream: str, partitions: int) -> None:
        self.stream = stream
        self.problems: list[str] = []
        self.acked: dict[int, tuple[int, int]] = {}
        """Number of a record -> where it was acked: partition, offset."""
        self.committed: dict[int, int] = defaultdict(int)
        self._consumed: dict[int, int] = defaultdict(int)
        self._times: list[tuple[float, int]] = []
        self._commit_times: list[float] = []
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._commands = commands(directory, bootstrap, stream)
        self._processes: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._start(self._commands[0], self._produced)
        for command in self._commands[1:]:
            self._start(command, partial(self._of_member, _Member()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._end(self._processes[:1])
                self._wait(self._handled_all, "the group is behind")
                self._end(self._processes[1:])
        finally:
            for process in self._processes:
                process.kill()
            for thread in self._threads:
                thread.join(WAIT_S)

    def _start(self, command: Sequence[str], take: Callable[[dict[str, Any]], None]) -> None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        thread = threading.Thread(target=self._follow, args=(process, take))
        self._processes.append(process)
        self._threads.append(thread)
        thread.start()

    def _end(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(WAIT_S)

    def _follow(self, process: subprocess.Popen[str], take: Callable[[dict[str, Any]], None]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._lock:
                    take(json.loads(line))

    # --- what they say -----------------------------------------------------------------------------------------------

    def _produced(self, event: dict[str, Any]) -> None:
        if event["name"] == "producer_send_success":
            self.acked[int(event["value"])] = event["partition"], event["offset"]
            self._times.append((time.monotonic(), event["partition"]))
        elif event["name"] == "producer_send_error":
            self.problems.append(f"record {event['value']}: {event['exception']} {event['message']}")

    def _of_member(self, member: _Member, event: dict[str, Any]) -> None:
        if event["name"] == "partitions_assigned":
            for one in event["partitions"]:
                member.next_offset.pop(one["partition"], None)
                member.floor[one["partition"]] = self.committed[one["partition"]]
        elif event["name"] == "records_consumed":
            for one in event["partitions"]:
                self._read(member, one["partition"], one["minOffset"], one["maxOffset"], one["count"])
        elif event["name"] == "offsets_committed" and event["success"]:
            for one in event["offsets"]:
                self.committed[one["partition"]] = one["offset"]
            self._commit_times.append(time.monotonic())

    def _read(self, member: _Member, index: int, first: int, last: int, count: int) -> None:
        expected = member.next_offset.get(index)
        if expected is None:
            if not member.floor.get(index, 0) <= first <= self._consumed[index]:
                self.problems.append(
                    f"partition {index}: begun at {first}, {member.floor.get(index)} was committed and "
                    f"{self._consumed[index]} handled"
                )
        elif first != expected:
            self.problems.append(f"partition {index}: read {first} after {expected - 1}")
        if count != last + 1 - first:
            self.problems.append(f"partition {index}: {count} records from {first} to {last}")
        member.next_offset[index] = last + 1
        self._consumed[index] = max(self._consumed[index], last + 1)

    def _handled_all(self) -> bool:
        ends: dict[int, int] = defaultdict(int)
        with self._lock:
            for index, offset in self.acked.values():
                ends[index] = max(ends[index], offset + 1)
            return all(self.committed[index] == end for index, end in ends.items())

    # --- for the test ------------------------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert not self.problems, self.problems
            assert time.monotonic() < deadline, f"{what}: {dict(self.committed)}, {len(self.acked)} acked"
            time.sleep(0.02)

    def wait_for_acks(self, count: int = 200) -> None:
        """Return once so many records were acked from now on, and some of each partition."""
        begun = len(self._times)

        def acked() -> bool:
            new = self._times[begun:]
            return len(new) >= count and len({index for _, index in new}) == self._partitions

        self._wait(acked, f"no acks of {self.stream}")

    def wait_for_commits(self) -> None:
        """Return once an offset was committed from now on."""
        begun = len(self._commit_times)
        self._wait(lambda: len(self._commit_times) > begun, "no commits")

    def times(self) -> tuple[list[float], list[float]]:
        """When something was acked, and when something was committed."""
        return [when for when, _ in list(self._times)], list(self._commit_times)

    def check(self) -> None:
        """After the end: what was acked is there, once, in order; the group had all."""
        assert self.problems == []
        found = read_all(self._bootstrap, self.stream, self._partitions)
        for number, (index, offset) in self.acked.items():
            assert found[index].get(offset) == number, (
                f"{number} was acked at {index}/{offset}: {found[index].get(offset)}"
            )
        numbers = [number for records in found.values() for number in records.values()]
        assert len(numbers) == len(set(numbers)), "records are doubled"
        assert set(numbers) == set(self.acked), "there are records that were neither acked nor refused"
        for index, records in found.items():
            in_order = [records[offset] for offset in sorted(records)]
            assert in_order == sorted(in_order), f"partition {index} is out of order"
