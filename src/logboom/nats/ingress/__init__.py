"""From NATS into partitions: subscriptions, messages, acks.

budget        how many bytes may have arrived and not be stored yet; when the connection is not read
holding       what is done with the messages of one partition while leaderships change; pure
answers       acks of messages that were stored together; pure
services      what all intakes of a broker share
inflight      messages on their way into one partition together; pure
replies       what the publishers of one stream are told
refusals      what they were told lately not to be stored; pure
intake        the messages of one stream: to its partitions, and their outcomes back to the publishers
plan          which subscriptions this broker should have, given the streams and what it leads; pure
predecessors  which broker has led a partition last
handover_messages  the messages between the next leader and the previous one; pure
handover      the next leader asks the previous one for the messages that it could not store
ingress       keeps all of these, and the subscriptions, in accordance with the plan
"""
