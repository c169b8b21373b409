"""Routing of a batch by one layer: each row goes to the places its conditions choose, copied where these are several.

Knows layers and rows. Must not know Spark. Conditions are evaluated here where they are simple; otherwise Spark has
evaluated them before, and their values are in the batch, in the conditions' columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from logboom.pipeline.plan.layout import Condition, Layer
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE, Branches, Choice, Counted, Emit, Outcome, Union
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.route.rows import Index, Rows, Weights
from logboom.pipeline.route.sample_columns import sampler, true_rows

Verdicts = Mapping[str, npt.NDArray[np.int8]]
"""By the column of a condition: TRUE, FALSE or FAILED by row."""


def needs_spark(layer: Layer) -> bool:
    """Whether Spark has to evaluate the layer's conditions."""
    return any(
        simple_condition(condition.sql) is None if condition.sample is None else sampler(condition.sample) is None
        for condition in layer.conditions
    )


def route_rows(rows: Rows, layer: Layer, *, answered: bool) -> tuple[Rows, Mapping[str, int]]:
    """The rows behind the layer, in their order, and by the name of an expression how often it failed. `answered`:
    Spark has given the verdicts and set the weights."""
    verdicts = {condition.column: _verdict(rows, condition, answered=answered) for condition in layer.conditions}
    weights = rows.own_weights if answered or not layer.weights else _weights(rows, layer, verdicts)
    spreading = _Spreading(verdicts)
    positions, codes = spreading.destinations(rows, layer)
    if len(positions) == len(rows) and (positions[1:] > positions[:-1]).all():
        return Rows(rows.batch, codes, rows.index, weights), spreading.failures
    order = np.argsort(positions, kind="stable")
    positions, codes = positions[order], codes[order]
    own = None if weights is None else weights[positions]
    return Rows(rows.batch, codes, rows.of_batch[positions], own), spreading.failures


def _verdict(rows: Rows, condition: Condition, *, answered: bool) -> npt.NDArray[np.int8]:
    if answered:
        verdicts: npt.NDArray[np.int8] = rows.batch.column(condition.column).to_numpy(zero_copy_only=False)
        verdicts = verdicts.astype(np.int8)
        return verdicts if rows.index is None else verdicts[rows.index]
    if condition.sample is not None:
        sample = sampler(condition.sample)
        assert sample is not None
        batch = rows.batch if rows.index is None else rows.flat()
        return np.where(sample.stays(batch, rows.weights), TRUE, FALSE).astype(np.int8)
    answer = simple_condition(condition.sql)
    assert answer is not None
    found = true_rows(answer(rows.batch))
    return np.where(found if rows.index is None else found[rows.index], TRUE, FALSE).astype(np.int8)


def _weights(rows: Rows, layer: Layer, verdicts: Verdicts) -> Weights:
    weights = rows.weights.copy()
    batch = rows.batch if rows.index is None else rows.flat()
    for weight in layer.weights:
        sample = sampler(weight.sample)
        assert sample is not None
        here = (rows.at == weight.at) & (verdicts[weight.column] == TRUE)
        weights[here] = sample.grown(batch, rows.weights)[here]
    return weights


@dataclass(slots=True)
class _Spreading:
    """Walks the outcomes of a layer with the rows of one batch."""

    verdicts: Verdicts
    failures: dict[str, int] = field(default_factory=dict)

    def destinations(self, rows: Rows, layer: Layer) -> tuple[Index, npt.NDArray[np.int32]]:
        """Which row goes to which place, once for each destination; rows at a place that the layer does not route
        stay."""
        heads = [head for head, _ in layer.routing]
        stay = np.flatnonzero(~np.isin(rows.at, heads))
        positions, codes = [stay], [rows.at[stay]]
        for head, outcome in layer.routing:
            for here, code in self._spread(outcome, np.flatnonzero(rows.at == head)):
                positions.append(here)
                codes.append(np.full(len(here), code, np.int32))
        return np.concatenate(positions), np.concatenate(codes)

    def _spread(self, outcome: Outcome, here: Index) -> Iterator[tuple[Index, int]]:
        match outcome:
            case Emit(codes):
                yield from ((here, code) for code in codes)
            case Counted(_, then):
                self._count(outcome, len(here))
                yield from self._spread(then, here)
            case Choice(column, then, otherwise, failed):
                verdict = self.verdicts[column][here]
                for value, part in ((TRUE, then), (FALSE, otherwise), (FAILED, failed)):
                    yield from self._spread(part, here[verdict == value])
            case Branches():
                yield from self._spread_branches(outcome, here)
            case Union(parts):
                for part in parts:
                    yield from self._spread(part, here)

    def _spread_branches(self, outcome: Branches, here: Index) -> Iterator[tuple[Index, int]]:
        nothing, any_failed = np.ones(len(here), np.bool_), np.zeros(len(here), np.bool_)
        for (column, part), failed in zip(outcome.branches, outcome.failed, strict=True):
            verdict = self.verdicts[column][here]
            yield from self._spread(part, here[verdict == TRUE])
            nothing &= verdict == FALSE
            fails = verdict == FAILED
            yield from self._spread(failed, here[fails & ~any_failed])
            self._count(failed, int((fails & any_failed).sum()))
            any_failed |= fails
        yield from self._spread(outcome.unmatched, here[nothing])

    def _count(self, outcome: Outcome, rows: int) -> None:
        if isinstance(outcome, Counted) and rows:
            self.failures[outcome.rule] = self.failures.get(outcome.rule, 0) + rows
