"""What several processes share: sockets, signs of life, memory's file, others' files; imports none of our packages."""
