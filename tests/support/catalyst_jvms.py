"""Bare JVMs of Spark's analyser that serve one check after another in this process, so that most tests start none.

A JVM that comes up, loads Spark's classes and runs them for the first time takes a second and a half of CPU time, ten
times what a check in a test does. Each use has a connection of its own, and so a thread with settings of its own in the
JVM, as a JVM of its own would give it. A JVM in which much is left behind ends: py4j lets go of nothing there.

How such a JVM starts and ends, and the archive of its classes, is what tests/pipeline/test_jvm_archive.py tries, and
every command that is a process of its own.
"""

from collections.abc import Iterator

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from logboom.base.units import MIB
from logboom.pipeline.spark import catalyst
from logboom.pipeline.spark.catalyst import CatalystJvm

_LEFT_BYTES_MAX = 150 * MIB
"""Of 512 MiB that it may have."""


class _Serving:
    """A JVM that is up, and how it is reached."""

    def __init__(self) -> None:
        self._jvm = CatalystJvm()
        self._first = self._jvm.connect()
        self._parameters: GatewayParameters = self._first.gateway_parameters

    def connect(self) -> JavaGateway:
        return JavaGateway(gateway_parameters=self._parameters)

    @property
    def is_full(self) -> bool:
        runtime = self._first.jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory()) > _LEFT_BYTES_MAX

    def close(self) -> None:
        self._jvm.close(self._first)


class _Lent:
    """One use of such a JVM, as a `CatalystJvm`."""

    def __init__(self, idle: list[_Serving]) -> None:
        self._idle = idle
        self._serving = idle.pop() if idle else _Serving()

    def connect(self) -> JavaGateway:
        return self._serving.connect()

    def close(self, gateway: JavaGateway) -> None:
        gateway.close()
        if self._serving.is_full:
            self._serving.close()
        else:
            self._idle.append(self._serving)

    def kill(self) -> None:
        """It was not used."""
        self._idle.append(self._serving)


@pytest.fixture(scope="session", autouse=True)
def shared_catalyst_jvms() -> Iterator[None]:
    """What a module imports this fixture for: checks of its tests share JVMs."""
    idle: list[_Serving] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(catalyst, "CatalystJvm", lambda: _Lent(idle))
        yield
    for serving in idle:
        serving.close()
