"""Calls from one event loop to another, on threads of their own."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run `work` as a task of another loop; its result, or what it raises. It runs on where the caller is cancelled.

    As `asyncio.run_coroutine_threadsafe`, but the coroutine is made by the loop that runs it: a loop that has ended
    leaves none that was never awaited.
    """
    caller = asyncio.get_running_loop()
    answer: asyncio.Future[Result] = caller.create_future()
    loop.call_soon_threadsafe(_begin, work, caller, answer)
    return await answer


def _begin(
    work: Callable[[], Coroutine[Any, Any, Result]], caller: asyncio.AbstractEventLoop, answer: "asyncio.Future[Result]"
) -> None:
    asyncio.ensure_future(work()).add_done_callback(partial(_hand_back, caller, answer))


def _hand_back(
    caller: asyncio.AbstractEventLoop, answer: "asyncio.Future[Result]", task: "asyncio.Future[Result]"
) -> None:
    with suppress(RuntimeError):  # the caller's loop was closed meanwhile
        caller.call_soon_threadsafe(_copy, task, answer)


def _copy(task: "asyncio.Future[Result]", answer: "asyncio.Future[Result]") -> None:
    if task.cancelled():
        answer.cancel()
        return
    error = task.exception()
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
