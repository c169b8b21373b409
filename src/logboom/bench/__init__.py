"""Row 5: measures any server that speaks the Kafka protocol, from outside, as a client would.

Knows sockets, clocks and pictures; must not know the broker's inside. Every run writes `result.json` and a picture.
"""
