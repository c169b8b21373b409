"""The server as a whole: `services` makes and wires everything that connections share, `server` listens, ticks and
stops, `limits` reports the usage of every limit. Only `app` and the tests know this room.
"""
