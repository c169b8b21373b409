"""Long lives of a log on a disk that fails again and again, drawn from seeds: the machine dies, the log is opened on
what survived, perhaps dies while it is being opened, and so on.

A failure prints its seed: `LOGBOOM_TEST_SEED=123 pytest tests/faults/test_disk_seeds.py` plays that one alone.
"""

import errno
import os
from dataclasses import replace
from random import Random

import pytest
from tests.support.disk_lives import Fault, Life, PowerFailureError, Step, Told, all_batches, hold

from logboom.base.errors import StorageError
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig

CONFIGS = (
    LogConfig(segment_bytes=900, index_interval_bytes=1, recovery_point_bytes=300, preallocate_bytes=0),
    LogConfig(segment_bytes=2_500, index_interval_bytes=200, recovery_point_bytes=700, preallocate_bytes=3_000),
    LogConfig(segment_bytes=100_000, index_interval_bytes=1_000, recovery_point_bytes=2_000, preallocate_bytes=5_000),
)
FAULTS = (None, None, None, errno.EIO, errno.ENOSPC, errno.EMFILE)
LIVES = 5
FOUND = (3, 1449, 2467, 13224, 8, 704, 4476, 2439)
"""Seeds that failed once: names of segments lost out of order; index entries of bytes that were cut; an epoch that was
noted and then forgotten with the tail before it; a cut that noted as durable what was only written; a truncation that
the next process believed and the disk did not have; a durable snapshot of producers replaced by one that was not;
batches of a producer remembered around one that was forgotten; a log cut back to its start, before which a deletion had
left the first of three segments and removed the next."""
SHORT, LONG = 50, 6_000


def steps_of(random: Random) -> list[Step]:
    """What one life does, from its opening on."""
    steps: list[Step] = [("open",)]
    for _ in range(random.randrange(5, 50)):
        name = random.choices(
            ("append", "flush", "roll", "lead", "checkpoint", "delete", "truncate", "close", "open"),
            (40, 30, 2, 3, 3, 5, 2, 2, 3),
        )[0]
        match name:
            case "append":
                steps.append((name, random.randrange(1, 4), random.choice((1, 60, 200)), random.random() < 0.6))
            case "flush":
                steps.append((name, random.random() < 0.6))
            case "delete" | "truncate":
                steps.append((name, random.random()))
            case "close":
                steps += [("close",), ("open",)]
            case _:
                steps.append((name,))
    return steps


def live(random: Random, disk: SimDisk, config: LogConfig, told: Told) -> Life:
    """One life with one fault somewhere, or none."""
    steps = steps_of(random)
    fault = Fault(random.randrange(1, 25 * len(steps)), random.choice(FAULTS), random.random() < 0.3)
    fault.install(disk)
    life = Life(disk, config, told)
    try:
        life.play(steps)
    except PowerFailureError:
        life.log = None
    disk.fault = lambda operation, path: None
    life.learn_of(fault)
    return life


def play(seed: int) -> None:
    random = Random(seed)
    config = random.choice(CONFIGS)
    disk, told = SimDisk(), Told()
    for number in range(LIVES):
        life = live(random, disk, config, told)

        def case(survivor: str, number: int = number) -> str:
            return f"seed {seed}, life {number}, {survivor}"

        hold(life, random, case)
        name, disk = random.choice(list(life.survivors(random)))
        told = _told_by(life, disk, settled=name != "restarted")


def _told_by(life: Life, disk: SimDisk, *, settled: bool) -> Told:
    """What the next life begins with: all that survived is durable, unless the machine never stopped."""
    opened = Life(disk.copy(), life.config)
    opened.play([("open",)])
    assert opened.log is not None
    found = dict(all_batches(opened.log))
    start = opened.log.log_start_offset
    ever = {base: [data] for base, data in found.items()}
    deleted = {base: data for base, data in life.told.now.items() if base < min(found, default=start)}
    if not settled:
        return replace(life.told, now={**deleted, **found})
    return Told(opened.log.durable_end, start, {start}, {**deleted, **found}, ever, life.told.snapshots_lost)


def seeds(count: int) -> list[int]:
    alone = os.environ.get("LOGBOOM_TEST_SEED")
    return [*FOUND, *range(count)] if alone is None else [int(alone)]


def test_short_runs_of_many_lives() -> None:
    """`play` asserts after each life of a run that the log keeps what it told; the seed of a failure is named."""
    for seed in seeds(SHORT):
        play_or_tell(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_long_runs_of_many_lives() -> None:
    """As above, many more seeds."""
    for seed in seeds(LONG):
        play_or_tell(seed)


def play_or_tell(seed: int) -> None:
    try:
        play(seed)
    except (AssertionError, StorageError, OSError, KeyError) as error:
        raise AssertionError(f"LOGBOOM_TEST_SEED={seed}: {type(error).__name__}: {error}") from error
