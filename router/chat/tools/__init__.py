"""Calls of tools: which may be made, how families of models write them, and how they are read and demanded; may import
chat.deltas, chat.marks, errors and grammar."""
