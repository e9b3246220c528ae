"""From text to token ids and back, and the search for the end of an answer; may import system."""
