"""Time that a test moves by hand."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """The Clock port; it stands still between two assignments to `now_s`."""

    now_s: float = 1_000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1_000_000_000)
