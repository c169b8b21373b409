"""librdkafka as a producer of lines, record by record: for outputs with TLS, SASL or other options of librdkafka.

The producer is idempotent and gapless: an error that would leave a gap is fatal, so that no later record overtakes the
one that failed. The delivery then makes a new producer.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from logboom.base.errors import LogboomError
from logboom.collector.config import MESSAGE_MAX_BYTES, OutputConfig
from logboom.collector.pending_send import POSITION_HEADER, UNFINISHED_HEADER, PendingSend

_QUEUE_MAX_RECORDS: Final = 5_000_000
_QUEUE_MAX_KIB: Final = 2_097_151

# The library spells its local errors with an underscore.
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
_QUEUE_FULL: Final = KafkaError._QUEUE_FULL  # noqa: SLF001


class OutputConfigError(LogboomError):
    """librdkafka does not take the options it was given."""


def producer_options(bootstrap: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's configuration: ours, with the user's over it, with what is never the user's over that."""
    return {
        "client.id": "logboom-collector",
        "compression.type": "zstd",
        "linger.ms": 20,
        "partitioner": "murmur2_random",
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        "log_level": 2,
        **options,
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,
        "message.timeout.ms": 0,
        "message.max.bytes": MESSAGE_MAX_BYTES,
        "queue.buffering.max.messages": _QUEUE_MAX_RECORDS,
        "queue.buffering.max.kbytes": _QUEUE_MAX_KIB,
    }


def check_options(output: OutputConfig) -> None:
    """OutputConfigError where librdkafka does not take an option. Nothing is connected to."""
    _new_producer(producer_options(output.bootstrap, output.librdkafka))


def _new_producer(options: Mapping[str, Any]) -> Any:
    try:
        return Producer(dict(options))
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise OutputConfigError(f"output.librdkafka: {reason}.") from None


class RecordClient:
    """See the module. Life: made, `produce` and `poll` again and again, `purge` where it is given up, `close`."""

    def __init__(self, options: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> None:
        self._on_error = on_error
        ours = {"error_cb": on_error, "logger": logging.getLogger("librdkafka")}
        self._producer = _new_producer({**options, **ours})

    def produce(self, pending_send: PendingSend, count: int) -> None:
        """Hand `count` records, from the first unacknowledged one on, to the client."""
        source, lines = pending_send.source, pending_send.lines
        produce, stream, key, report = self._producer.produce, source.stream, source.key, pending_send.report
        shared, time_ms = source.headers(pending_send.time_ms, pending_send.content_id), pending_send.time_ms
        values, starts, unfinished = lines.values, lines.starts, lines.unfinished
        first = pending_send.acked
        for index in range(first, min(first + count, len(values))):
            headers = [*shared, (POSITION_HEADER, b"%d" % starts[index])]
            if index in unfinished:
                headers.append((UNFINISHED_HEADER, b"true"))
            try:
                produce(stream, values[index], key, -1, report, None, time_ms, headers)
            except BufferError:
                pending_send.stopped_by = KafkaError(_QUEUE_FULL)
                break
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                pending_send.stopped_by = reason
                if reason.code() == _FATAL:
                    self._on_error(reason)
                break
            pending_send.pending += 1

    def is_stuck(self, stream: str) -> bool:
        """Whether a stream's records are sent again and again; the library does not say."""
        return False

    def poll(self, timeout_s: float) -> None:
        """Take what came back, waiting up to `timeout_s` for it."""
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Send what lingers and wait for answers, no longer than this."""
        self._producer.flush(timeout_s)

    def purge(self) -> None:
        """Give up everything that is not acknowledged."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    def close(self) -> None:
        """Nothing of it is needed any more."""
