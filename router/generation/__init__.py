"""From what a client asks for to the events of its answers, whichever API it came by."""
