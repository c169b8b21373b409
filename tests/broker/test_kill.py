"""kill -9 in the middle of appends: what was acked is there, in order and whole; and again after the next kill."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker.node import run, running

from logboom.base.ids import Offset
from logboom.records import iter_batches, iter_records

# Appends numbered values to two partitions, with acks from group commits, and prints each acked number.
WRITER = """
import asyncio, sys
from functools import partial
from pathlib import Path
from tests.broker.node import append_soon, batch, start

async def main():
    path, first = Path(sys.argv[1]), int(sys.argv[2])
    broker = await start(path, checkpoint_interval_s=1)
    if broker.catalog.stream("orders") is None:
        await broker.catalog.create_stream("orders", partitions=2, config={"segment.bytes": "16384"})
    def acked(number, future):
        print(number, future.result().base_offset, flush=True)
    number = first
    while True:
        for _ in range(7):
            sequence = (number - first) // 2
            producer = (first + number % 2, 0, sequence)
            partition = broker.replicas.find("orders", number % 2)
            future = append_soon(partition, batch(b"%d" % number * 40, producer=producer))
            future.add_done_callback(partial(acked, number))
            number += 1
        await asyncio.sleep(0.0005)

asyncio.run(main())
"""


@pytest.mark.parametrize("acks_before_kill", [1, 150])
def test_acked_records_survive_kill_9(tmp_path: Path, acks_before_kill: int) -> None:
    acked: dict[int, int] = {}
    for life in range(3):
        first = life * 1_000_000
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as writer:
            assert writer.stdout is not None
            for _ in range(acks_before_kill):
                _note(acked, writer.stdout.readline())
            writer.kill()
            for line in writer.stdout.read().splitlines(keepends=True):
                if line.endswith("\n"):
                    _note(acked, line)
    stored = run(lambda: _stored(tmp_path))
    for number, offset in acked.items():
        assert stored[number % 2].get(offset) == number
    for numbers in stored:
        assert list(numbers) == list(range(len(numbers)))  # no hole in the offsets
        assert list(numbers.values()) == sorted(set(numbers.values()))  # no reordering, nothing twice


def _note(acked: dict[int, int], line: str) -> None:
    number, offset = line.split()
    acked[int(number)] = int(offset)


async def _stored(path: Path) -> list[dict[int, int]]:
    """Offset to number, for both partitions."""
    found: list[dict[int, int]] = [{}, {}]
    async with running(path) as broker:
        for index, numbers in enumerate(found):
            partition = broker.replicas.find("orders", index)
            while data := await partition.reads.read(Offset(len(numbers)), 1 << 20):
                for position, header in iter_batches(data):
                    for record in iter_records(data, position, header, 1 << 20):
                        assert record.value is not None
                        text = record.value.decode()
                        number = text[: len(text) // 40]
                        assert text == number * 40
                        numbers[record.offset] = int(number)
    return found
