"""The process that runs the passes of key compaction: `serve` is its work.

It opens no file: it gets the files of the segments, and of the one to write, from the broker. So it may go on for a
moment when the broker was killed; the file that it writes then has no name any more once the next broker has started.
"""

import traceback
from typing import Final

from logboom.base.errors import StorageError
from logboom.base.ports import File, HelperSide, SyncFailedError
from logboom.base.units import MIB
from logboom.broker.disk import pass_messages as messages
from logboom.storage.compaction import FilePasses
from logboom.storage.segment import BadBatchError

WORK: Final = f"{__name__}:serve"
_WORKED_BYTES: Final = 4 * MIB
"""After this many bytes the broker is notified, and asked whether to go on: some fifty times a second."""


def serve(side: HelperSide) -> None:
    """Do what is asked for until the broker ends. EOFError then."""
    passes: FilePasses | None = None
    while True:
        asked = messages.decode_for_process(side.receive()[0])
        match asked:
            case messages.Begin():
                passes = None  # its memory first
                passes = FilePasses(asked.plan)
            case messages.Read() | messages.Write():
                assert passes is not None
                side.send(messages.encode(_result(passes, asked, _Files(side))))
            case messages.Continue():
                raise AssertionError("nothing is waited for")


class _Files:
    """See `passes.Files`."""

    def __init__(self, side: HelperSide) -> None:
        self._side = side
        self._read_bytes = self._written_bytes = 0

    def source(self, number: int) -> File:
        return self._ask_for_file(messages.NeedSource(number))

    def target(self) -> File:
        return self._ask_for_file(messages.NeedTarget())

    def did_read(self, size_bytes: int) -> None:
        self._read_bytes += size_bytes
        self._report(_WORKED_BYTES)

    def did_write(self, size_bytes: int) -> None:
        self._written_bytes += size_bytes
        self._report(_WORKED_BYTES)

    def finish(self) -> None:
        """Report what was not reported yet."""
        self._report(1)

    def _report(self, least_bytes: int) -> None:
        if self._read_bytes + self._written_bytes >= least_bytes:
            message = messages.PassProgress(self._read_bytes, self._written_bytes)
            self._read_bytes = self._written_bytes = 0
            self._ask(message)

    def _ask(self, question: messages.ToCleaner) -> File | None:
        self._side.send(messages.encode(question))
        answer, file = self._side.receive()
        assert isinstance(messages.decode_for_process(answer), messages.Continue)
        return file

    def _ask_for_file(self, question: messages.ToCleaner) -> File:
        file = self._ask(question)
        assert file is not None
        return file


def _result(passes: FilePasses, asked: messages.Read | messages.Write, files: _Files) -> messages.ToCleaner:
    try:
        found: messages.ToCleaner
        if isinstance(asked, messages.Read):
            found = messages.ReadDone(*passes.read(asked.source, files))
        else:
            found = messages.write_done(passes.write(asked.sources, files))
        files.finish()
        return found
    except BadBatchError as bad:
        return messages.Damaged(bad.path, bad.position, bad.offset, bad.reason)
    except StorageError as error:
        return messages.CannotOpen(str(error))
    except OSError as error:
        return messages.DiskFailed(error.errno or 0, error.strerror or str(error), isinstance(error, SyncFailedError))
    except EOFError:
        raise
    except Exception:  # noqa: BLE001 - a bug: the broker logs it, this process has no log
        return messages.InternalError(traceback.format_exc())
