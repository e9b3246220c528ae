"""`python -m penstock`: the same as the command `penstock`."""

from penstock.router.launcher import entry

entry.penstock()
