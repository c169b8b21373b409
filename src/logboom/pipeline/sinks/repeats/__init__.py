"""What a sink has had before, which a router that was killed writes to its edge a second time.

`origins` knows the records of an edge and tells repeats by the order of their origins; `grouping` works out groups of
rows with equal values. This module stays empty, since `pipeline check` imports it: both need Arrow.
"""
