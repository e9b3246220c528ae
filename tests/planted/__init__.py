"""Faults that are planted into a copy of the tree, to see that the quick tests find them: `python -m tests.planted`."""
