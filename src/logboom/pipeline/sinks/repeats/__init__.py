"""What a sink has had before: of a router that was killed and wrote its edge again, or by another attempt at a batch.

`origins` knows the records of an edge and tells repeats by the order of their origins; `grouping` works out groups of
rows with equal values. `ranges` says which records of a batch are done, `left` leaves those out, and `letters` writes
the dead letters of a batch once. This module stays empty, since `pipeline check` imports it: most of it needs Arrow.
"""
