"""Guesses of the next tokens, and how many a step should verify: no answer depends on it; may import contract and
scheduling."""
