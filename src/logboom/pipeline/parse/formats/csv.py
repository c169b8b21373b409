"""The format `csv`: one row per record (RFC 4180).

Knows quoting and columns. Must not know the meaning of a column. An empty value is treated as absent; a quote in the
middle of an unquoted value is an ordinary character; newlines inside quotes belong to the value.
"""

from typing import Final, Literal

import pyarrow as pa

from logboom.pipeline.findings import Part
from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.formats.base import FormatNode, FormatType, RuleModel
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE, text_lines


class CsvRuleModel(RuleModel):
    """Values in columns, as in RFC 4180."""

    format: Literal["csv"]
    columns: list[str] | None = None
    """Names of the columns, each once; required."""

    delimiter: str | None = None
    """The separator: one character; default `,`."""


class CsvFormat(FormatNode, frozen=True, kw_only=True, tag="csv"):
    """One RFC 4180 row per record."""

    columns: tuple[str, ...]
    delimiter: str = ","

    def read_rows(self, values: pa.Array) -> list[Row]:
        return [_row(line, self.columns, self.delimiter) for line in text_lines(values).to_pylist()]


def _compile(model: CsvRuleModel, part: Part) -> CsvFormat | None:
    if not model.columns or len(set(model.columns)) != len(model.columns):
        part.problem("columns", "format csv needs the names of its columns, without duplicates")
        return None
    delimiter = "," if model.delimiter is None else model.delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n':
        part.problem("delimiter", "should be one character other than a quote or a line end")
        return None
    return CsvFormat(columns=tuple(model.columns), delimiter=delimiter)


def _row(line: str | None, columns: tuple[str, ...], delimiter: str) -> Row:
    if line is None:
        return NO_VALUE
    if not line:
        return EMPTY
    values = line.split(delimiter) if '"' not in line else _quoted(line, delimiter)
    if isinstance(values, str):
        return values
    if delimiter.isspace():  # missing columns at the end are treated as empty
        values += [""] * (len(columns) - len(values))
    if len(values) != len(columns):
        return f"has {len(values)} values where {len(columns)} are expected"
    if tuple(values) == columns:
        return "is the row of column names"
    return {name: value for name, value in zip(columns, values, strict=True) if value}


def _quoted(line: str, delimiter: str) -> list[str] | str:
    values: list[str] = []
    position, end = 0, len(line)
    while True:
        if line.startswith('"', position):
            close = _closing_quote(line, position + 1)
            if close < 0:
                return "has a quote that is never closed"
            values.append(line[position + 1 : close].replace('""', '"'))
            position = close + 1
            if position < end and line[position] != delimiter:
                return f"has text after a closing quote at character {position + 1}"
        else:
            stop = line.find(delimiter, position)
            stop = end if stop < 0 else stop
            values.append(line[position:stop])
            position = stop
        if position >= end:
            return values
        position += 1


def _closing_quote(line: str, position: int) -> int:
    while True:
        close = line.find('"', position)
        if close < 0 or line[close + 1 : close + 2] != '"':
            return close
        position = close + 2


FORMATS: Final = (FormatType("csv", CsvRuleModel, CsvFormat, _compile),)
