"""What a child process runs first: it asks the kernel to kill it when its parent ends, then becomes the real program.

    python -m logboom.app.supervisor.launch PARENT_PID PROGRAM ARGUMENT...

A node that outlived its supervisor would hold its ports and its data directory with nobody to stop it. The wish
outlives execve(2), and reaches a process that is stopped by SIGSTOP too (prctl(2), PR_SET_PDEATHSIG).
"""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main(parent: int, command: list[str]) -> None:
    """Become `command`. Does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel was asked
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
