"""Conversations, from messages to a prompt and from an answer to tool calls; may import errors, grammar,
shapes, system and text."""
