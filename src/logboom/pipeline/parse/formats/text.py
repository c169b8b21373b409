"""The format `text`: the whole line is the body."""

from typing import Final

import pyarrow as pa

from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.formats.base import FormatNode, plain_format
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines


class TextFormat(FormatNode, frozen=True, tag="text"):
    """The whole line becomes the body."""

    def read_rows(self, values: pa.Array) -> list[Row]:
        return [
            {"body": line} if line else NO_VALUE if line is None else EMPTY for line in text_lines(values).to_pylist()
        ]


FORMATS: Final = (plain_format("text", TextFormat(), of_bodies=False),)
