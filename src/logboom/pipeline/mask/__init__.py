"""Masking: `batch.mask_batch` replaces secrets in the text columns of a batch and counts them.

A find is a part of a text that a rule replaces. `detect` says where in a text finds are, `replace` what is put in their
place, `texts` does both for one text or JSON object. `columns` does it for a whole column: it first selects, from the
bytes of all rows at once, the rows that may hold a find, and works on those alone. `rules` are the settings, `keys`
reads the secret keys.

What is left after a mask holds nothing that the same mask would find, so masking twice changes nothing.
"""
