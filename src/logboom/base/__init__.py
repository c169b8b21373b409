"""Row 0: ids, errors, units and the ports of the house. It knows the words and nothing of what is done with them."""
