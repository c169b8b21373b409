"""HDFS, over its HTTP (WebHDFS), which takes neither a JVM nor Hadoop's libraries: executors are Python.

`client` sends the requests; `files` makes a file system of Arrow of it, for archives. A checkpoint's objects are in
`checkpoint.bucket.hdfs_objects`. Must not know what is kept there.
"""
