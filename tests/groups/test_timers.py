"""Timers against a model: a plain dict of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.groups.timers import Timers

OPS = st.lists(st.tuples(st.sampled_from("scp"), st.sampled_from("abc"), st.integers(0, 50)), max_size=60)


@given(OPS)
def test_timers_behave_as_a_dict_of_deadlines(ops: list[tuple[str, str, int]]) -> None:
    timers: Timers[tuple[str, ...]] = Timers()
    model: dict[tuple[str, ...], int] = {}
    for op, name, ms in ops:
        key = (name,)
        if op == "s":
            timers.set(key, ms)
            model[key] = ms
        elif op == "c":
            timers.cancel(key)
            model.pop(key, None)
        else:
            popped = timers.pop_due(ms)
            due = {k for k, deadline in model.items() if deadline <= ms and deadline == min(model.values())}
            assert (popped in due) if due else popped is None
            if popped is not None:
                del model[popped]
        assert timers.next_ms() == min(model.values(), default=None)


def test_cancelled_timers_do_not_pile_up() -> None:
    timers: Timers[tuple[str, ...]] = Timers()
    for index in range(10_000):
        timers.set((str(index),), index)
        timers.cancel((str(index),))
    assert len(timers._heap) < 100
