"""What transforms with a state are made of: keys by hash, the progress of time, and a state's tables as files.

`keys` gives fingerprints of the values of many rows at once. `watermarks` says up to where the times of events have
come, with partitions that are behind and partitions that are silent. `segments` keeps the tables of a state: files that
never change, shared from batch to batch. What a stateful transform is, is said in `logboom.pipeline.plan.stateful`; how
one is run, in `logboom.pipeline.execute.exchange` and `.memory`; which state belongs to which batch, in
`logboom.pipeline.checkpoint.states`.

Nothing here depends on the clock, chance or the machine: a batch that is repeated finds the same.
"""
