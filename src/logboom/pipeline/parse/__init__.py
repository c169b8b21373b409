"""From raw records to events, a whole Arrow batch at a time.

`batch.parse_batch` is the kernel of the transform `parse`. It tries the rules of the parse in order (`rule.ParseRule`),
each on the remaining rows that it applies to. The rule's format reads their values, and `normalise` converts the result
to columns of an event. A format (`formats`) returns one of these:

- columns of many values at once (`Format.read_columns`), for lines of one form, such as flat JSON (`json_spans`); or
- a row for each value (`Format.read_rows`): its fields by name, or the reason why it has none.

A row that a rule has read is done. A row that no rule can read keeps its record and all reasons, and becomes a dead
letter. A line never raises an exception, which would fail the whole batch.

`grok` makes RE2 expressions from patterns with `%{NAME}`, whose library is `grok_library`; `groups` parses just enough
of RE2's syntax to rename groups. `bodies` parses a body that is itself in a format. `lines` decodes text, `escapes`
decodes backslash escapes, `json_lines` decodes JSON.

Nothing here knows what a field means, or where an event goes afterwards.
"""
