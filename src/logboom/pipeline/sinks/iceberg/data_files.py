"""Events as data files of a table, one or more for each of its partitions, which no snapshot names yet.

pyiceberg's own way from a table of Arrow to data files begins with a whole batch on the driver (`Table.append`), or
ends with files that have no field ids and only partitions by transforms that keep the order of values (`add_files`). So
rows are split here by the public parts of a partition spec, and its `write_file` writes them with field ids and
statistics.

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
"""Bytes of the name of a partition's directory; a file system takes 255 at most, an object store 1,024 in all."""
_DIRECTORY_KEPT: Final = 120
_DIGEST_CHARACTERS: Final = 16


class _PartitionKey(PartitionKey):
    """Names the directories of long values by their beginning and a digest. Where a data file lies says nothing of its
    partition in Iceberg, whose manifests have the values."""

    def to_path(self) -> str:
        return "/".join(map(_short, super().to_path().split("/")))


def _short(directory: str) -> str:
    if len(directory) <= _DIRECTORY_MAX:  # pyiceberg quotes what is not ASCII
        return directory
    digest = hashlib.sha256(directory.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{directory[:_DIRECTORY_KEPT]}~{digest}"


class DataFileWriter:
    """Writes data files of one task, under names that no other task has."""

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
        """Writes rows, which are not none, whose columns the table has; the files that hold them."""
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
    """The rows of each partition that has any, in their order; the one key of a table without partitions is None."""
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
    """What a partition field makes of each row. A column that others added to the table has no values here."""
    name = schema.find_column_name(field.source_id)
    if name not in rows.schema.names or isinstance(field.transform, VoidTransform):
        return pa.nulls(rows.num_rows)
    return field.transform.pyarrow_transform(schema.find_type(field.source_id))(rows.column(name))
