"""What several processes share: Unix sockets, signs of life and the file of a memory; imports none of our packages."""
