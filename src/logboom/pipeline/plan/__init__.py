"""The compiled pipeline: `config` makes it, `checkpoint` stores it, `execute` and `run` execute it.

`nodes` has the frozen base classes of all sources, transforms and sinks, and the columns on the edges between them.
`layout` turns the graph into numbered places and steps; `outcomes` describes the routing of one step. `sampling` has
the one definition of sampling by hash, as SQL and as Python. `names` has the names of streams and headers, `paths`
resolves the paths of a file. Nothing here reads YAML, uses Arrow or knows how a node works.
"""
