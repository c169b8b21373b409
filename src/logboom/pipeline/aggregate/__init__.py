"""Metrics out of events: what windows and groups have counted, as rows that can be merged in any order.

`cells` is the one form that all metrics have between events and results: a number by window, group, metric and slot.
Cells are made of a batch of events, merged with cells of other batches, and kept in a state until their window ends.
`measures` says for each kind of metric which slots an event touches, and what the slots of a window come to.
`open_windows` keeps the open windows of a shard in tables that a batch adds to, and counts groups beyond the limit
together. `window_results` makes the events of windows that have ended, in the columns of
`made_events`.

Pure functions over columns. Must not know files, shards or Spark; the transform is
`logboom.pipeline.transforms.aggregate`.
"""
