"""What is in a message of NATS and in the answer to it. Pure: knows no connection, no loop, no clock.

headers    the header block of a message, and what is written in one
acks       answers as JetStream gives them
messages   a message becomes the content of a record, with the terms that its publisher asks for
"""
