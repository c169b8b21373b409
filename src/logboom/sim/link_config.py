"""How connections between simulated processes behave."""

from dataclasses import dataclass
from random import Random

from logboom.base.units import KIB


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """How connections behave."""

    latency_min_s: float = 20e-6
    latency_max_s: float = 2e-3
    piece_bytes_min: int = 1
    """Writes arrive cut into pieces of a random size from here on."""
    piece_bytes_max: int = 64 * KIB
    socket_bytes: int = 128 * KIB
    """What is on the way and in the peer's socket at most."""

    def latency_s(self, chance: Random) -> float:
        """How long the next piece takes."""
        return self.latency_min_s + (self.latency_max_s - self.latency_min_s) * chance.random()

    def piece_bytes(self, chance: Random) -> int:
        """How long the next piece may be: every order of magnitude is as likely."""
        low, high = self.piece_bytes_min, self.piece_bytes_max
        size_bytes = int(low * (high / low) ** chance.random())
        return low if size_bytes < low else min(size_bytes, high)
