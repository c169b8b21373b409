"""The compiled pipeline: what `config` makes, `checkpoint` keeps and everything else obeys.

`nodes` are the frozen parts of a plan, with the columns on its edges. `layout` turns the graph into places and steps.
`sampling` holds the one definition of sampling by hash, as SQL and as Python. `names` has the names of streams and
headers, `paths` resolves the paths of a file. Nothing here reads YAML, touches Arrow or knows how a node does its work.
"""
