"""`python -m penstock`: the same as the command `penstock`."""

from penstock.launcher import entry

entry.penstock()
