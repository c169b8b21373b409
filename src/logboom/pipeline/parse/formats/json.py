"""The format `json`: one JSON object (RFC 8259) per record."""

from typing import Final

import pyarrow as pa

from logboom.pipeline.normalise.rows import LineColumns, Row
from logboom.pipeline.parse.formats.base import FormatNode, plain_format
from logboom.pipeline.parse.json_lines import read_json
from logboom.pipeline.parse.json_spans import read_json_columns


class JsonFormat(FormatNode, frozen=True, tag="json"):
    """One JSON object per record. Flat lines with the same keys are read as columns, all others are decoded one by
    one."""

    def read_rows(self, values: pa.Array) -> list[Row]:
        return read_json(values)

    def read_columns(self, values: pa.Array) -> list[LineColumns]:
        return read_json_columns(values)


FORMATS: Final = (plain_format("json", JsonFormat()),)
