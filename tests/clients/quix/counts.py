"""Counts with quixstreams: takes the broker's address and a directory for its state.

The value of a record of the stream `numbers` is its number among those of its key, from 1 on. The state of a key has
the highest number (`last`), how many records were applied to it, those that came again included (`applied`), and how
often a number was skipped (`gaps`). The stream `counts` gets each new state.
"""

import sys

from quixstreams import Application, State


def count(number: int, state: State) -> dict[str, int]:
    last, applied, gaps = (state.get(name, 0) for name in ("last", "applied", "gaps"))
    new = {"last": max(last, number), "applied": applied + 1, "gaps": gaps + (number > last + 1)}
    for name, value in new.items():
        state.set(name, value)
    return new


def main(bootstrap: str, directory: str) -> None:
    application = Application(
        broker_address=bootstrap,
        consumer_group="counting",
        state_dir=directory,
        auto_offset_reset="earliest",
        commit_interval=0.2,
        consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    )
    numbers = application.topic("numbers", key_deserializer="str", value_deserializer="json")
    counts = application.topic("counts", key_serializer="str", value_serializer="json")
    application.dataframe(numbers).apply(count, stateful=True).to_topic(counts)
    application.run()


main(*sys.argv[1:])
