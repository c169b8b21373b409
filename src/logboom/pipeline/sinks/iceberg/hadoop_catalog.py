"""Tables that are directories of a file system, in the layout of Iceberg's HadoopCatalog.

`WAREHOUSE/NAMESPACE/TABLE/metadata/vN.metadata.json` is version N of a table, the highest is current, and
`version-hint.text` has a version to start the search from. A commit creates the file of the next version, which fails
if it exists (https://iceberg.apache.org/spec/#file-system-tables). This needs a file system with hard links. The files
that a version refers to are made durable before the version.

Knows pyiceberg and files. Must not know events or batches.
"""

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from logboom.pipeline.checkpoint.files import make_dir, sync_dir, write_durably

_VERSION: Final = re.compile(r"v(\d+)\.metadata\.json")
_HINT: Final = "version-hint.text"


class HadoopCatalog(NoopCatalog):
    """The tables below a warehouse directory."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__("hadoop")
        self._warehouse = warehouse

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table.

        :raises NoSuchTableError: it does not exist.
        """
        names = self.identifier_to_tuple(identifier)
        path = self._newest(names)
        if path is None:
            raise NoSuchTableError(f"there is no table {'.'.join(names)} in {self._warehouse}")
        io = load_file_io({}, str(path))
        metadata = FromInputFile.table_metadata(io.new_input(str(path)))
        return Table(names, metadata, str(path), io, self)

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table.

        :raises TableAlreadyExistsError: it exists.
        """
        assert isinstance(schema, Schema)
        assert location is None, "tables lie where their names say"
        names = self.identifier_to_tuple(identifier)
        directory = self._directory(names)
        metadata = new_table_metadata(schema, partition_spec, sort_order, str(directory), dict(properties))
        make_dir(directory / "metadata")
        if not _put_version(directory / "metadata", 1, metadata):
            raise TableAlreadyExistsError(f"the table {'.'.join(names)} is there already")
        return self.load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit a change of a table.

        :raises CommitFailedException: another commit came first, or a requirement is not met.
        """
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = update_table_metadata(current.metadata, updates, metadata_location=current.metadata_location)
        if metadata != current.metadata:
            self._sync_new_files(table, metadata, current.metadata)
            path = Path(current.metadata_location)
            number = _number(path) + 1
            if not _put_version(path.parent, number, metadata):
                raise CommitFailedException(f"version {number} of the table was committed by another process")
        changed = self.load_table(table.name())
        return CommitTableResponse.model_validate(
            {"metadata": changed.metadata, "metadata-location": changed.metadata_location}
        )

    def _directory(self, names: Identifier) -> Path:
        return self._warehouse.joinpath(*names)

    def _newest(self, names: Identifier) -> Path | None:
        directory = self._directory(names) / "metadata"
        try:
            found = [path for path in directory.iterdir() if _VERSION.fullmatch(path.name)]
        except FileNotFoundError:
            return None
        return max(found, key=_number, default=None)

    def _sync_new_files(self, table: Table, changed: TableMetadata, before: TableMetadata) -> None:
        """Make durable the files of the snapshots that a commit adds: manifest lists, manifests and data files."""
        known = {snapshot.snapshot_id for snapshot in before.snapshots}
        paths: set[str] = set()
        for snapshot in changed.snapshots:
            if snapshot.snapshot_id in known:
                continue
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.added_snapshot_id == snapshot.snapshot_id:
                    paths.add(manifest.manifest_path)
                    paths.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
        for path in paths:
            _sync_file(Path(path))
        for directory in {parent for path in paths for parent in Path(path).parents[:3]}:
            sync_dir(directory)


def _put_version(directory: Path, number: int, metadata: TableMetadata) -> bool:
    """Create the file of a version; False if it exists."""
    beside = directory / f".{uuid.uuid4().hex}.json"
    beside.write_text(metadata.model_dump_json(exclude_none=True), encoding="utf-8")
    _sync_file(beside)
    try:
        os.link(beside, directory / f"v{number}.metadata.json")
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    sync_dir(directory)
    with contextlib.suppress(OSError):  # the hint may be old: readers search for higher versions
        write_durably(directory / _HINT, str(number).encode())
    return True


def _number(path: Path) -> int:
    match = _VERSION.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
