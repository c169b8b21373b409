"""What a broker runs on beside the event loop and the disk: its clock, its random values and its threads.

Everything in this process that asks for the time, draws a random value or starts a thread does it through one Runtime,
which is made once, by `app` or by a test, and handed down. It knows the ports and the real machine; not what they are
used for.
"""

from dataclasses import dataclass, field

from logboom.base.ports import Clock, Ids, Workers
from logboom.host import SystemClock, SystemIds, SystemWorkers


@dataclass(frozen=True, slots=True)
class Runtime:
    """The machine behind one broker; by default the real one."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    workers: Workers = field(default_factory=SystemWorkers)
