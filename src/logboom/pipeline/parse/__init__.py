"""From raw records to events, a whole Arrow batch at a time.

`batch.parse_batch` is the kernel of the transform `parse`. It tries the rules of the parse in order (`rule.ParseRule`),
each on the rows that are left and that it applies to. The rule's format reads their values, and `normalise` makes
columns of an event of what was read. A format (`formats`) gives one of two things:

- columns of many values at once (`Format.read_columns`), for lines of one form, such as flat JSON (`json_spans`); or
- a row for each value (`Format.read_rows`): its fields by name, or the reason why it has none.

A row that a rule has read is done. One that no rule reads keeps its record and all reasons, and becomes a dead letter.
A line never raises: an exception would stop the whole batch.

`grok` makes RE2 expressions of patterns with `%{NAME}`, whose library is `grok_library`; `groups` knows just enough of
RE2's syntax to rename groups. `bodies` reads a body once more that is itself in a format. `lines` decodes text,
`escapes` undoes backslashes, `json_lines` decodes JSON.

Nothing here knows what a field means, or where an event goes afterwards.
"""
