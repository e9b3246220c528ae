"""Unix sockets, as every process meets them: who is there, and what is left of them; imports none of our packages."""
