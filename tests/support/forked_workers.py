"""The workers of pytest-xdist, forked off one process that has imported all modules of the tests.

Importing them takes a process some seven seconds of CPU time. A worker that is forked off finds them in `sys.modules`,
and collects in two. Otherwise it is what execnet would have started: a Python that runs the line which execnet sends.
"""

import gc
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from execnet import gateway_io
from tests.support.fork_server import leave, wait_for_request
from tests.support.forking import ForkedProcess, Template

_MODULES_ONLY = ("--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
_MAIN = "import sys; from tests.support.forked_workers import serve; serve(int(sys.argv[1]), sys.argv[2:])"


def fork_workers(tests: Sequence[str]) -> None:
    """In the process that starts the workers, before the first: they run some of `tests`, the files and directories."""
    # Not by -m, which would have processes of multiprocessing's import that module again as their main one.
    template = Template(lambda descriptor: [sys.executable, "-c", _MAIN, str(descriptor), *tests])
    start = gateway_io.create_io

    def create_io(spec: Any, execmodel: Any) -> gateway_io.Popen2IOMaster:
        return _ForkedIO(template, execmodel) if spec.popen and not spec.python else start(spec, execmodel)

    gateway_io.create_io = create_io  # execnet has no option for how a process starts


class _ForkedIO(gateway_io.Popen2IOMaster):
    """The pipes to a worker."""

    def __init__(self, template: Template, execmodel: Any) -> None:
        self.popen = ForkedProcess(template, [], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=2)
        super(gateway_io.Popen2IOMaster, self).__init__(self.popen.stdin, self.popen.stdout, execmodel=execmodel)


class _NoTests:
    """Leaves nothing of a collection but the modules, and the constants that hypothesis, whose hook is called before
    this one, has found in them."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.clear()


def _load_messages() -> None:
    """Every version of every request that is served: a second of CPU time, which each worker would take by itself,
    since brokers load them as they are asked."""
    from logboom.kafka.apis import load_handlers
    from logboom.kafka.wire.messages import response_class
    from logboom.kafka.wire.reading import reader_for
    from logboom.kafka.wire.writing import writer_for

    for api_key, handler in load_handlers().items():
        for version in range(handler.min_version, handler.max_version + 1):
            reader_for(api_key, version)
            writer_for(response_class(api_key, version))


def serve(descriptor: int, tests: Sequence[str]) -> None:
    """The process that the workers are forked off, and each of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests is theirs; their end ends this process too
    pytest.main([*_MODULES_ONLY, *tests], plugins=[_NoTests()])
    if "logboom.kafka" in sys.modules:
        _load_messages()
    gc.unfreeze()  # the session of that collection
    gc.collect()
    gc.freeze()
    if wait_for_request(descriptor, lambda request: None) is not None:
        sys.argv = ["-c"]
        exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    leave(0)
