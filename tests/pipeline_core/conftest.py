"""JVMs that check conditions are shared by the tests of a process."""

from tests.support.catalyst_jvms import shared_catalyst_jvms

__all__ = ["shared_catalyst_jvms"]
