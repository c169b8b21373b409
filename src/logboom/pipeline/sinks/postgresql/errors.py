"""Maps PostgreSQL's errors to a target's errors, by SQLSTATE (PostgreSQL's manual, appendix A).

Knows psycopg's errors. Must not know the statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.base.errors import LogboomError
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.bulk.target import GiveUpError, RefusedWholeError, TryAgainError

if TYPE_CHECKING:
    import psycopg

_ROW_STATES: Final = ("21", "22", "23", "44", "54", "0A", "P0", "P1")
"""Error classes that blame a row: its data, constraints, a limit, or a trigger's exception."""
_ROW_CLASSES_AGAIN: Final = ("54001",)
"""Statement too complex: a limit of the server's stack, not an error of a row."""
_NO_USE_STATES: Final = ("28", "3D", "3F", "42", "0L", "0P")
"""Credentials, database, schema, table, column, privilege."""
_OVERLOAD_STATES: Final = ("53", "57014", "55P03")
_NO_USE_TEXTS: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "certificate verify failed",
    "root certificate file",
    "does not support SSL",
)
"""libpq gives no SQLSTATE for refused connections, so these are matched by text. Other connection errors are
retried."""


def needs_driver() -> None:
    """Raise PipelineError if psycopg is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise PipelineError(
            f"the sink postgresql needs psycopg ({error}): pip install 'logboom[postgresql]'"
        ) from error


def meaning(error: psycopg.Error) -> LogboomError:
    """The target's error for an error of the driver."""
    state, text = error.sqlstate, _said(error)
    if state is None:
        if any(words in text for words in _NO_USE_TEXTS):
            return GiveUpError(text)
        return TryAgainError(text)
    reason = f"{text} (SQLSTATE {state})"
    if state == "42P10":
        return GiveUpError(f"{reason}: the table needs a unique index on the column of event_id")
    if state.startswith(_OVERLOAD_STATES):
        return TryAgainError(reason, is_overload=True)
    if state.startswith(_NO_USE_STATES):
        return GiveUpError(reason)
    if state.startswith(_ROW_STATES) and state not in _ROW_CLASSES_AGAIN:
        return RefusedWholeError(reason)
    return TryAgainError(reason)


def _said(error: psycopg.Error) -> str:
    """The server's message in one line, without DETAIL, which contains values of the row."""
    first = error.diag.message_primary or str(error)
    where = error.diag.context or ""
    where = f" ({where.splitlines()[0].partition(': ')[0]})" if where.startswith("COPY ") else ""
    return f"PostgreSQL: {' '.join(first.split())}{where}"
