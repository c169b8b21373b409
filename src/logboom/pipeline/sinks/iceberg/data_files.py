"""Writes events to data files of a table, at least one for each partition, without adding them to a snapshot.

pyiceberg's own functions do not fit: `Table.append` needs the whole batch on the driver, and `add_files` accepts only
files without field ids and partitions by order-preserving transforms. So rows are split here with the public API of
partition specs, and pyiceberg's `write_file` writes them with field ids and statistics.

Knows Arrow and pyiceberg. Must not know events, batches or how files are committed.
"""

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import bin_pack_arrow_table, pyarrow_to_schema, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.utils.properties import property_as_int

_ROW: Final = "row"
_DIRECTORY_MAX: Final = 200
"""Limit in bytes for the name of a partition's directory. File systems accept 255 per name, object stores 1,024 in
all."""
_DIRECTORY_KEPT: Final = 120
_DIGEST_CHARACTERS: Final = 16


class _PartitionKey(PartitionKey):
    """Shortens the directory names of long values, with a digest. Iceberg does not read values from paths: its
    manifests have them."""

    def to_path(self) -> str:
        return "/".join(map(_short, super().to_path().split("/")))


def _short(directory: str) -> str:
    if len(directory) <= _DIRECTORY_MAX:  # pyiceberg quotes non-ASCII characters
        return directory
    digest = hashlib.sha256(directory.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{directory[:_DIRECTORY_KEPT]}~{digest}"


class DataFileWriter:
    """Writes data files of one task, with names that are unique to it."""

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._metadata = metadata
        self._io = io
        self._id = uuid.uuid4()
        self._written = 0
        wanted = property_as_int(
            metadata.properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        self._target_bytes = wanted or TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows, at least one, that have the table's columns. Returns the files."""
        return list(write_file(self._io, self._metadata, self._tasks(rows)))

    def _tasks(self, rows: pa.Table) -> Iterator[WriteTask]:
        schema = pyarrow_to_schema(
            rows.schema,
            name_mapping=self._metadata.schema().name_mapping,
            format_version=self._metadata.format_version,
        )
        for key, part in split_by_partition(rows, self._metadata):
            for batches in bin_pack_arrow_table(part, self._target_bytes):
                yield WriteTask(self._id, self._written, schema, batches, partition_key=key)
                self._written += 1


def split_by_partition(rows: pa.Table, metadata: TableMetadata) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    """The rows of each non-empty partition, in order. A table without partitions has the one key None."""
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        yield None, rows
        return
    names = [str(number) for number in range(len(spec.fields))]
    values = [_values(rows, field, schema) for field in spec.fields]
    numbered = pa.table([*values, pa.array(range(rows.num_rows), pa.int64())], [*names, _ROW])
    groups = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")]).combine_chunks()
    for at, found in enumerate(groups.select(names).to_pylist()):
        key = _PartitionKey(
            [PartitionFieldValue(field, found[name]) for field, name in zip(spec.fields, names, strict=True)],
            spec,
            schema,
        )
        yield key, rows.take(groups.column(f"{_ROW}_list")[at].values)


def _values(rows: pa.Table, field: PartitionField, schema: Schema) -> Any:
    """The values of a partition field. A column that was added by others has no values here."""
    name = schema.find_column_name(field.source_id)
    if name not in rows.schema.names or isinstance(field.transform, VoidTransform):
        return pa.nulls(rows.num_rows)
    return field.transform.pyarrow_transform(schema.find_type(field.source_id))(rows.column(name))
