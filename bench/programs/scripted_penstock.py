"""The command `penstock` with scripted shards in the place of real ones."""

from penstock.bench.programs import scripted_server
from penstock.launcher.entry import penstock

if __name__ == "__main__":
    scripted_server.install()
    penstock()
