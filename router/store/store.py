"""The store: files and batches in one database."""

from penstock.router.store.batches import Batches
from penstock.router.store.database import Database
from penstock.router.store.files import Files


class Store:
    """Files and batches that outlive the router."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.files = Files(database)
        self.batches = Batches(database)
