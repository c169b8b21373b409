"""Checks whether an edited pipeline can continue with the state of its transforms.

A transform continues with the state of one that has the same name and form (`StatefulTransform.state_form`). Any other
state is dropped only if the user names it (`run --drop-state NAME`, `reload --drop-state NAME`). The same holds for
state whose files are damaged. Knows plans, states and the router's offsets in Spark.
"""

from collections.abc import Collection
from pathlib import Path

from logboom.pipeline.checkpoint.spark_log import last_committed, unfinished_batch
from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.state.memory import Memory


def check_state_is_whole(checkpoint: Path, dropped: Collection[str]) -> None:
    """DamagedError if a state file for the next batch is damaged. Damaged state of a transform in `dropped` is
    dropped."""
    query = checkpoint / "router"
    unfinished, done = unfinished_batch(query), last_committed(query)
    behind = 0 if done is None else done + 1
    StateStore(checkpoint / "state").check_whole(behind if unfinished is None else unfinished, dropped)


def check_state_carries_over(checkpoint: Path, plan: Plan, dropped: Collection[str]) -> None:
    """PipelineError if the plan cannot continue with a state that is not in `dropped`, by name."""
    memory = StateStore(checkpoint / "state").last()
    problem = lost_state(memory, plan, dropped)
    if problem is not None:
        raise PipelineError(problem)


def still_given_up(checkpoint: Path, running: Plan, names: Collection[str]) -> tuple[str, ...]:
    """Transforms with dropped state whose old state is still in the checkpoint, because no batch has run since."""
    memory = StateStore(checkpoint / "state").last()
    remembered = {name: memory.transforms[name].form for name in names if name in memory.transforms}
    forms = {node.name: node.state_form for node in running.transforms if isinstance(node, StatefulTransform)}
    return tuple(name for name, form in remembered.items() if form != forms.get(name))


def lost_state(memory: Memory, plan: Plan, dropped: Collection[str]) -> str | None:
    """What would be lost, and what to do about it; None if nothing would be lost."""
    forms = {node.name: node.state_form for node in plan.transforms if isinstance(node, StatefulTransform)}
    lost, flags = [], []
    for name, remembered in memory.transforms.items():
        if remembered.is_empty or name in dropped or forms.get(name) == remembered.form:
            continue
        what = f"{name} ({remembered.remembered:,} remembered, {remembered.held:,} events held)"
        change = f"it is '{forms[name]}' now" if name in forms else "the transform was removed"
        lost.append(f"{what}: it was '{remembered.form}' in the file, and {change}")
        flags.append(f"--drop-state {name}")
    if not lost:
        return None
    return (
        f"the edited pipeline cannot continue with the state of {'; of '.join(lost)}; undo the change, or drop the "
        f"state with {' '.join(flags)} (held events then count as dropped)"
    )
