"""Masking: `batch.mask_batch` replaces secrets in the text columns of a batch and counts them.

`detect` says where in a text a secret stands, `replace` what is put there, `texts` does both for one text or JSON
object, `columns` for a whole column: which rows may hold a find is asked of all bytes at once, and only those rows are
looked at one by one. What is left after a mask contains nothing that the same mask would find.
"""
