"""From NATS into partitions: subscriptions, messages, acks.

budget        how much may have arrived and not be stored; when the connection is not read
holding       what is done with the messages of one partition while leaderships change; pure
answers       acks of messages that were stored together; pure
services      what all intakes of a broker share
inflight      messages on their way into one partition together; pure
replies       what the publishers of one stream are told
refusals      what they were told lately not to be stored; pure
intake        the messages of one stream, on their way to its partitions and with their outcomes back
plan          which subscriptions this broker should have, by the streams and what it leads; pure
predecessors  who has led a partition last
handover_messages  what the next leader and the one before it say to each other; pure
handover      the next leader asks the one before it for what that one could not store
ingress       keeps these and subscriptions as the plan says
"""
