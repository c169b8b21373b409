"""The pipeline's error for users, and notes that say which part of the file an exception comes from.

Knows no part of a pipeline. Importable from every room.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from logboom.base.errors import LogboomError


class PipelineError(LogboomError):
    """The pipeline cannot start or continue; the text says what to do."""


class JvmEndedError(PipelineError):
    """Spark's JVM has ended, and with it everything that ran in it. A run can continue with a new JVM."""

    def __init__(self, end: str, then: str = "", *, from_outside: bool = False) -> None:
        """`end`: how it ended, as a clause. `then`: the rest of the sentence. `from_outside`: a signal or a cluster
        manager has ended it, and not what it was started with."""
        super().__init__(f"{end}{then}")
        self.end = end
        self.from_outside = from_outside


@contextmanager
def working_on(part: str, place: str) -> Iterator[None]:
    """Adds a note to each exception raised inside: which part of the pipeline was running, and its place in the file
    (`line 7`). Inner parts come first."""
    try:
        yield
    except Exception as error:  # raised again, with a note
        error.add_note(f"{part} ({place})")
        raise


def placed(error: Exception, file: str) -> PipelineError:
    """The same failure as one sentence that names the part of the file that was running."""
    if isinstance(error, PipelineError):
        return error
    parts = " of ".join((*getattr(error, "__notes__", ()), file))
    message = " ".join(str(error).split())
    return PipelineError(f"{parts} failed: {type(error).__name__}" + (f": {message}" if message else ""))
