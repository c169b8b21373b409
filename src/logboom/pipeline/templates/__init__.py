"""Templates of lines that no format reads, learnt while they pass: the work of the transform `patterns`.

`words` cuts lines into words whose numbers, ids and addresses are taken out, a column at a time; `drain` is the tree
that learns which words are always the same; `state` makes a table of trees and trees of a table. Pure, and without a
clock: the same lines in the same order give the same templates.
"""
