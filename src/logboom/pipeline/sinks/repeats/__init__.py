"""Recognises events that a sink has had before: from a killed router that wrote its edge again, or from another attempt
at a batch.

`origins` recognises repeats among the records of an edge by the order of their origins; `grouping` groups rows with
equal values. `ranges` records which records of a batch are done, `left` filters them out, and `letters` writes the dead
letters of a batch once. This module must stay empty, because `pipeline check` imports it and most of the package needs
Arrow.
"""
