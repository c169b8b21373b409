"""A whole node under one seed: real code on simulated time, threads, network and disk.

A run is made of `Process`es. Each has an asyncio event loop (`loop`; the HTTP server has a second one), threads
(`threads`), a clock and random values (`machine`), all driven by one `Scheduler` on one thread of the operating system:
it runs one callback after the other, and when nothing can run, time jumps to the next timer. Connections between
processes (`network`, `transport`) deliver bytes in pieces and late. The disk (`disk`) knows what was synced and forgets
the rest when the power is cut; the device below it (`device`) takes its time, fails and hangs, for calls on threads and
for syncs beside the event loop alike. A `SimNode` is such a process with a real node in it (`app.node`: the
broker, its Kafka server and its HTTP server), nothing of it replaced: it takes its clock, ids, threads and disk through
ports (`base.ports`, `broker.runtime`), and timers and sockets from its event loops.

A `Scenario` runs a node, clients and faults (`faults`), writes down what clients were told (`history`), and checks it
as Jepsen's workload for Kafka does. Clients are producers with every kind of acks and consumers (`workload`), members
of a group (`members`), one that creates and deletes streams (`streams`), one that deletes records (`trimming`), one
that keeps a table in a compacted stream (`tables`), and one that scrapes metrics, asks for health and sends the HTTP
front end what is no request (`probes`); one stream has a retention, so the broker deletes records too. `logboom sim run
--seed N` runs one. All chance comes from the seed through `Simulation.fork`, a stream of its own for each part, so that
a run can be repeated: same seed, same trace. Whatever ends a run, a violated promise or an exception, is told with the
seed. Faults are planned before a run begins (`schedule`), so that a run which fails can be had again with fewer of them
(`shrinking`); what came of them is counted (`coverage`). `campaign` runs many seeds, in processes side by side.

A `ClusterScenario` (`cluster`) runs several nodes of one cluster, each on a machine with a clock that drifts, and
clients that ask for leaders and coordinators (`routing`); nodes fail and are paused at the same time as the network
between them is cut; one of them loses its disk or has bits flip on it (`cluster_faults`); and somebody moves replicas,
drains, adds and removes brokers meanwhile (`administration`). In some runs leases end and come back (`lease_flaps`)
while streams are made, grown and deleted (`made_streams`), or requests to the controller come again late, while
settings change (`late_requests`). The seed chooses what else there is: deletions, a table,
clients that count with expected versions (`counting`), an observer, a stream that is attached to NATS: a simulated
server (`nats_server`) that loses what a real one loses (`nats_faults`), and publishers of four kinds
(`nats_publishing`); streams that share their subjects (`nats_attached`) and come and go (`nats_members`). In half of
the runs idempotent producers have several requests under way (`pipelining`, `pipelined_client`). What must hold at
every step is looked up in the brokers themselves (`invariants`); and how long a partition may stand still of which
nothing is wrong (`liveness`), as machines and network tell (`health`). `logboom sim run --nodes 3 --seed N` runs one.

What simulated code must not do, since the same seed would no longer give the same run:

- ask for the time, random values or threads other than through the Runtime and the event loop: `time`, `datetime.now`,
  `random`, `secrets`, `uuid`, `threading.Thread` and executors of its own stay out of broker, front ends and cores;
- let an order hang on addresses or hash seeds: iterate a set of objects or strings (sort it, or keep a dict), sort by
  `id`, act on what a WeakSet or the garbage collector leaves;
- reach past the Disk port, or open sockets;
- hold a `threading.Lock` while it waits for the disk, a mailbox or a future, where another thread or the loop may want
  it: the simulation stops there (as the real event loop would, if more briefly);
- wait on the event loop for anything at all.

What is not simulated: CPU time (callbacks take none but for writes on the loop, so nothing is found here that only a
busy loop shows), allocation failures, the process around the node (signals, limits), real sockets, and real file
systems. tests/faults has those with real processes.

Rooms, each knowing only those before it: `trace`, `scheduler`, `coverage`, `loop`, `threads` and `machine`,
`transport`, `network`, `process`, `simulation`, `schedule`, `outcome`, `disk`, `device`, `node`, `client`, `history`,
`routing`, `session`, `sending`, `workload`, `pipelined_client`, `pipelining`, `members`, `streams`, `trimming`,
`tables`, `counting`, `probes`, `faults`, `scenario`, `copies`, `invariants`, `health`, `liveness`, `cluster_faults`,
`nats_server`, `nats_faults`, `nats_attached`, `nats_members`, `nats_publishing`, `administration`, `made_streams`,
`lease_flaps`, `late_requests`, `cluster_scenario`, `cluster`, `shrinking`, `campaign`.
"""
