"""Counts taken while a batch runs, by Spark's `observe`, and asked for once it has been written.

Knows Spark's observations. Must not know what is counted.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Observation


class Counting:
    """The observations of one batch."""

    def __init__(self) -> None:
        self._observations: list[Observation] = []

    def watch(self, _name: str, rows: DataFrame, counts: Mapping[str, Column]) -> DataFrame:
        """The rows, counted as they pass."""
        observation = Observation()
        self._observations.append(observation)
        return rows.observe(observation, *(count.alias(name) for name, count in counts.items()))

    def result(self) -> dict[str, int]:
        """All counts, those of one name added up. To be called after the action over the rows has ended."""
        totals: dict[str, int] = {}
        for observation in self._observations:
            for name, count in observation.get.items():
                totals[name] = totals.get(name, 0) + int(count or 0)
        return totals
