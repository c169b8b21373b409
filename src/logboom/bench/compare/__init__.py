"""Logboom beside its peers in one run: the same load in turns, each server warm, the others paused meanwhile.

`contestants` says who, `cases` what, `run` in which order, `outcome` what is shown of it.
"""

from logboom.bench.compare.contestants import CLUSTERS, CONTESTANTS, Contestant
from logboom.bench.compare.outcome import write_outcome
from logboom.bench.compare.run import CASES, CompareLoad, run_compare

__all__ = ["CASES", "CLUSTERS", "CONTESTANTS", "CompareLoad", "Contestant", "run_compare", "write_outcome"]
