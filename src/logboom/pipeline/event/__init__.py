"""An event as columns and as text: `schema` has the Arrow types of its columns, `json` writes whole batches as JSON.

What the columns mean is in docs/pipeline.md, which columns there are in `plan.nodes`. Nothing here knows where an
event came from or who will read it.
"""
