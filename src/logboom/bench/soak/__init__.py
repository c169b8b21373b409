"""An hour, or some seconds, of mixed load on a broker that is restarted and killed meanwhile, and what may not happen.

`load` says what is sent, `ledger` what must hold, `readers` and `writers` do the work, `chaos` ends the broker's lives,
`samples` watches the process, `run` puts it together and gives the verdict.
"""

from logboom.bench.soak.load import SoakLoad
from logboom.bench.soak.run import run_soak, write_soak

__all__ = ["SoakLoad", "run_soak", "write_soak"]
