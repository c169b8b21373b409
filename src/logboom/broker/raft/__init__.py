"""The group's log on this broker's disk.

`files` writes what a `raft.Node` asks to be persisted and recovers it at the start. Nothing here runs on the event
loop: every method waits for the disk, and whoever drives a node calls them one at a time, in the order of its effects,
where the files of the log dir may be changed (`GroupCommit.run`).
"""

from logboom.broker.raft.files import RaftFiles

__all__ = ["RaftFiles"]
