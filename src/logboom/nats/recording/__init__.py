"""Requests to services and their replies, recorded in streams (`logboom.nats.services`).

pending    requests that wait for their replies, within limits of memory and time; pure
recorder   subscriptions to requests and replies, and the records that are made of both

A recorder only listens: it answers nothing, and what it cannot store is counted as dropped. It receives a request
before its reply, since the service receives it no sooner. If there are several NATS servers between them, a reply may
overtake its request; then it is not recorded. With several partitions each broker listens to everything, and records
what belongs to the partitions that it leads.
"""
