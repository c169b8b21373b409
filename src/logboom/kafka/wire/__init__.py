"""The protocol's bytes: requests to kio's entities, entities to responses.

kio brings the schema of every message and version. `schema` looks at it; `reading`, `writing` and `error_counts`
compile it into one Python function per message and version, on first use. `encoding` has the pieces of what is encoded
by hand for speed, and `encoded` its result. Nothing here knows a connection, a handler or the broker.
"""
