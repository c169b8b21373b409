"""A part of one core as the most that a process may use. Knows control groups (cgroups(7): cpu controller, v1, v2)."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from logboom.bench.servers.process import UnavailableError

_PERIOD_US = 10_000
"""How often a quota starts over. Short, so that a process that has used its share waits for milliseconds only."""
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cpu_quotas(pids: list[int], share: float) -> Iterator[None]:
    """Each of the processes, with its threads and what it starts, uses at most `share` of one core meanwhile.

    Those that still run at the end go on without a limit. Raises UnavailableError where they cannot be limited here.
    """
    parent = _V1 if (_V1 / "cpu.shares").exists() else _V2
    with contextlib.ExitStack() as groups:
        try:
            for pid in pids:
                group = parent / f"logboom-bench-{os.getpid()}-{pid}"
                group.mkdir()
                groups.callback(_dissolve, group)
                _limit(group, share)
                (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise UnavailableError(
                f"the processor time of a process cannot be limited here ({error}): run it as root, where control "
                "groups can be written"
            ) from error
        yield


def _limit(group: Path, share: float) -> None:
    quota = round(share * _PERIOD_US)
    if group.parent == _V1:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (_V2 / "cgroup.subtree_control").write_text("+cpu")
        (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")


def _dissolve(group: Path) -> None:
    """Remove the group; what still runs in it goes back to where it came from."""
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()
