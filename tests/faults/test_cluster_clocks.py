"""A real cluster under load, the clocks of whose brokers jump: leases, elections and sessions go by other clocks."""

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.faults.cluster_load import OFFSETS, STREAM, go_on, timed, under_load
from tests.support.brokers import ClusterBrokers, Place
from tests.support.waiting import WAIT_S

JUMPING_CLOCK = Path(__file__).parent / "jumping_clock"
STAMPED = "stamped"
MINUTE_S, DAY_S = 60, 86_400
JUMPS_S = (20 * MINUTE_S, -20 * MINUTE_S, DAY_S, 0)
"""Records are refused that are an hour ahead of a broker, so the clocks go back no further."""


def set_clock(directory: Path, number: int, off_s: int) -> None:
    """How far the clock of a broker is off the machine's, within a moment from now."""
    new = directory / f"new-clock-{number}"
    new.write_text(str(off_s))
    new.replace(directory / f"clock-{number}")


def with_clock(directory: Path, number: int) -> Place:
    set_clock(directory, number, 0)
    clock = directory / f"clock-{number}"
    # The path that the process would have had comes behind it.
    return Place(within=("sh", "-c", f'JUMPING_CLOCK={clock} PYTHONPATH={JUMPING_CLOCK}:$PYTHONPATH exec "$0" "$@"'))


def whose(cluster: ClusterBrokers, which: str) -> tuple[int, ...]:
    if which == "all":
        return tuple(cluster.brokers)
    return (cluster.leader(STREAM, 0) if which == "leader" else cluster.controller(),)


def has_clock(cluster: ClusterBrokers, off_s: int) -> bool:
    """Whether the leader of a stream that stamps its records stamps them with such a clock."""
    stamps: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(STAMPED, b"now?", on_delivery=lambda _, message: stamps.append(message.timestamp()[1]))
    producer.flush(WAIT_S)
    return bool(stamps) and abs(stamps[0] / 1_000 - time.time() - off_s) < MINUTE_S


@pytest.mark.slow
def test_clocks_that_jump(tmp_path: Path) -> None:
    """Nobody loses a leadership for it, nor a record or an offset; forwards, backwards, by a day and back again."""
    places = {number: with_clock(tmp_path, number) for number in (1, 2, 3)}
    with under_load(tmp_path, lease_ms=2_000, places=places) as (cluster, load):
        cluster.create(STAMPED, message_timestamp_type="LogAppendTime")
        for which in ("leader", "controller", "all"):
            for off_s in JUMPS_S:
                with timed(f"the clock of the {which} is {off_s} s off", load):
                    for number in whose(cluster, which):
                        set_clock(tmp_path, number, off_s)
                    if which == "all":
                        cluster.wait_for(partial(has_clock, cluster, off_s), "clocks that have jumped")
                    go_on(load)
                    cluster.wait_in_sync(STREAM)
                    cluster.wait_in_sync(OFFSETS)
