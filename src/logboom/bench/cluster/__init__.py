"""What a cluster costs and how it takes the death of a broker: each measurement starts its own nodes on this machine.

spread      two processes of one machine beside one, under one load over several partitions
quiet       memory and processor time of each broker of a cluster that has nothing to do
many        thousands of partitions: how long to create them, and how long a broker then takes to start
failover    how long nobody acks after kill -9 of a leader, and nobody decides after that of the controller
"""

from logboom.bench.cluster.failover import FailoverLoad, run_failover
from logboom.bench.cluster.many import ManyLoad, run_many
from logboom.bench.cluster.quiet import QuietLoad, run_quiet
from logboom.bench.cluster.spread import SpreadLoad, run_spread

__all__ = [
    "FailoverLoad",
    "ManyLoad",
    "QuietLoad",
    "SpreadLoad",
    "run_failover",
    "run_many",
    "run_quiet",
    "run_spread",
]
