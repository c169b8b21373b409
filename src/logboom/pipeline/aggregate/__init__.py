"""Metrics computed from events: the counts of windows and groups, as rows that can be merged in any order.

`cells` is the common intermediate form of all metrics between events and results: a number by window, group, metric and
slot. Cells are made of a batch of events, merged with cells of other batches, and kept in a state until their window
ends. `measures` defines for each kind of metric which slots an event changes, and how a window's value is computed from
its slots. `open_windows` keeps the open windows of a shard in tables to which each batch adds. Groups beyond the limit
are counted together. `window_results` creates the events of windows that have ended, in the columns of `made_events`.

Pure functions over columns. Must not know files, shards or Spark; the transform is
`logboom.pipeline.transforms.aggregate`.
"""
