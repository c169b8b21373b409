"""What the JVMs of the tests have besides their own options."""

from typing import Final

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m"
"""The JVM of a test lives for seconds: its second compiler costs more than it gives. Without that compiler a JVM has
48 MiB for compiled code instead of 240; the session that most tests share fills them, throws code away, and compiles it
again."""
