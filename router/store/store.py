"""The store: files, batches and responses in one database."""

from penstock.router.store.batches import Batches
from penstock.router.store.database import Database
from penstock.router.store.files import Files
from penstock.router.store.responses import Responses


class Store:
    """Files, batches and responses that outlive the router."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.files = Files(database)
        self.batches = Batches(database)
        self.responses = Responses(database)
