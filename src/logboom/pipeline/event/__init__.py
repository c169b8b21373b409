"""An event as columns and as text.

`schema` has the Arrow types of an event's columns. `json` writes whole batches of events as JSON, always with the same
members in the same order. `reading` reads that JSON back; it lets `spans` cut what was written by `json` into columns,
and decodes the rest row by row. `record_batch` puts pieces together.

What the columns mean is in docs/pipeline.md, which columns there are in `plan.nodes`. Nothing here knows where an event
comes from or goes.
"""
