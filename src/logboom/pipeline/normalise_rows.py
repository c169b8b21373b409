"""What every format gives for a batch: per record either its fields or the reason why it has none.

It knows that much and no format.
"""

from typing import Any

Fields = dict[str, Any]
"""Names and values that JSON can write."""

Row = Fields | str
"""The fields, or why the line could not be read: the end of a sentence for a person."""
