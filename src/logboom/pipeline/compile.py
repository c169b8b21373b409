"""From a pipeline's YAML to its plan, with every problem found told at once.

It knows names, the graph, which columns stand on each edge, rates and patterns. It must not know Spark: SQL is handed
to a checker that the caller brings.
"""

from collections.abc import Callable, Sequence

from logboom.pipeline.plan import Expression, Plan

Checker = Callable[[Sequence[Expression]], Sequence[str | None]]
"""Says for each expression what is wrong with it, or None."""


def compile_pipeline(text: str, file: str, check: Checker | None = None) -> Plan:
    """The plan a YAML text describes; raises SettingsError with all problems, those of `check` included."""
    raise NotImplementedError


def expressions(plan: Plan) -> tuple[Expression, ...]:
    """Every piece of SQL in a plan with the columns it may use."""
    raise NotImplementedError
