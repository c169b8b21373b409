"""Requests to services and their replies, recorded into streams (`logboom.nats.services`).

pending    requests whose replies are waited for, within bounds of memory and time; pure
recorder   subscriptions to requests and replies, and the records that are made of both

A recorder only listens: it answers nothing, and what it cannot store is counted as dropped. A request is heard before
its reply, since the service hears it no sooner. Where several servers of NATS lie between them, a reply may overtake;
it is not recorded then. With several partitions each broker listens to all, and records what belongs to the partitions
that it leads.
"""
