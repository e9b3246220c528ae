"""Vectors and scores of texts, by whichever API they are asked for; may import contract, engine, errors, generation,
limits, scheduling and text."""
