"""Messages of NATS: Logboom as their subscriber beside JetStream, and beside subscribers that do nothing.

`contestants` says who takes the messages, `cases` which load, `run` in which order, `outcome` what is shown of it;
`subscriber` is what does nothing, `attached` what many attached streams cost. The load is one Go program (`servers`).
"""

from logboom.bench.nats.attached import AttachedLoad, run_attached
from logboom.bench.nats.contestants import CONTESTANTS
from logboom.bench.nats.outcome import write_outcome
from logboom.bench.nats.run import CASES, NatsLoad, run_nats

__all__ = ["CASES", "CONTESTANTS", "AttachedLoad", "NatsLoad", "run_attached", "run_nats", "write_outcome"]
