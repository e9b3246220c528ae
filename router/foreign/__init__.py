"""Models whose requests servers elsewhere answer, in the order in which those are asked; may import errors,
foreign_settings and metrics."""
