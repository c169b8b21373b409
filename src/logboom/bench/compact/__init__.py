"""Key compaction, Logboom's and Kafka's on the same records in turns: how fast it is, and what it takes from clients.

`table` makes the stream, `cleaners` starts the brokers and hears from their logs when a stream is compacted, `speed`
times one compaction after another, `beside` measures clients with and without one going on.
"""

from logboom.bench.compact.beside import BesideLoad, run_beside
from logboom.bench.compact.cleaners import servers_of
from logboom.bench.compact.speed import SpeedLoad, run_speed

__all__ = ["BesideLoad", "SpeedLoad", "run_beside", "run_speed", "servers_of"]
