"""The node's own log: structlog, readable on a terminal, one JSON object per line elsewhere, always on standard error.

Messages of other libraries, through the standard library's logging, and Python's warnings come out the same way.
"""

import logging
import sys
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from logboom.app.config import LogConfig, LogFormat, LogLevel

SERVICE: Final = "logboom"
_FIRST: Final = ("timestamp", "level", "service", "message")
_NUMBERS: Final = {level.value: level.number for level in LogLevel} | {"exception": logging.ERROR}


class _Threshold:
    """Drops events below a level. A processor, because the level changes while loggers are in use."""

    def __init__(self) -> None:
        self.number = logging.NOTSET

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if _NUMBERS.get(method, logging.CRITICAL) < self.number:
            raise structlog.DropEvent
        return event


_threshold: Final = _Threshold()


def set_level(level: LogLevel) -> None:
    """Log events of this level and above from now on."""
    _threshold.number = level.number
    logging.getLogger().setLevel(level.number)


def open_log(config: LogConfig, stream: TextIO | None = None) -> FilteringBoundLogger:
    """Set up logging for this process and return the node's logger."""
    stream = stream or sys.stderr
    as_text = config.format is LogFormat.TEXT or (config.format is LogFormat.AUTO and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if as_text else "iso", utc=not as_text),
    ]
    ending = _text(stream) if as_text else _json()
    structlog.configure(
        processors=[_threshold, *shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    _take_over_standard_logging(stream, shared, ending)
    set_level(config.level)
    log: FilteringBoundLogger = structlog.get_logger()
    return log


def _text(stream: TextIO) -> list[Processor]:
    colors = stream.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]


def _json() -> list[Processor]:
    return [
        _name_service,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("message"),
        _in_order,
        structlog.processors.JSONRenderer(default=str),
    ]


def _name_service(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event["service"] = SERVICE
    return event


def _in_order(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Put the keys that every line has first, because people read these lines too."""
    first = {key: event.pop(key) for key in _FIRST if key in event}
    return {**first, **event}


def _take_over_standard_logging(stream: TextIO, shared: list[Processor], ending: list[Processor]) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.captureWarnings(True)
