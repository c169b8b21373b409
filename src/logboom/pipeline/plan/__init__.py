"""The compiled pipeline: `config` makes it, `checkpoint` keeps it, `execute` and `run` carry it out.

`nodes` are the frozen parts of a plan that all sources, transforms and sinks share, with the columns on its edges.
`layout` turns the graph into numbered places and steps; `outcomes` is how one step's routing is written down.
`sampling` holds the one definition of sampling by hash, as SQL and as Python. `names` has the names of streams and
headers, `paths` resolves the paths of a file. Nothing here reads YAML, touches Arrow or knows how a node does its work.
"""
