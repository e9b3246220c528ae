"""Conversations: from messages to a prompt, and from an answer to calls of tools; it may import text and grammar."""
