"""What a cluster costs and how it takes the death of a broker: each measurement starts its own nodes on this machine.

processes   two processes of one machine beside one, under one load over several partitions
idle        memory and processor time of each broker of a cluster that has nothing to do
partitions  thousands of partitions: how long to create them, and how long a broker then takes to start
failover    how long nobody acks after kill -9 of a leader, and nobody decides after that of the controller
"""

from logboom.bench.cluster.failover import FailoverLoad, run_failover
from logboom.bench.cluster.idle import IdleClusterLoad, run_idle_cluster
from logboom.bench.cluster.partitions import PartitionsLoad, run_partitions
from logboom.bench.cluster.processes import ProcessesLoad, run_processes

__all__ = [
    "FailoverLoad",
    "IdleClusterLoad",
    "PartitionsLoad",
    "ProcessesLoad",
    "run_failover",
    "run_idle_cluster",
    "run_partitions",
    "run_processes",
]
