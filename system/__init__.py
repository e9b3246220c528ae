"""The parts that several processes share: sockets, signs of life, memory's file, strangers' files; imports none of our
packages."""
