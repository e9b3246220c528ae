"""`python -m penstock`: the same as the command `penstock`."""

from penstock.router.launcher.cli import main

main(prog_name="penstock")
