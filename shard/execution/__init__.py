"""One step: from the rows of a plan to their tokens."""
