"""From NATS into partitions: subscriptions, messages, acks.

budget      how much may have arrived and not be stored; when the connection is not read
services    what all intakes of a broker share
intake      the messages of one stream, on their way to its partitions and with their outcomes back
plan        which subscriptions this broker should have, by the streams and what it leads; pure
ingress     keeps the subscriptions as the plan says
"""
