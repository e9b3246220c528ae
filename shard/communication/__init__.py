"""The exchanges between the ranks of a group."""
