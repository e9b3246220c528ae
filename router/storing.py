"""The store of a router's process, as the settings ask for it."""

from typing import TYPE_CHECKING

from penstock.router.config import RouterConfig
from penstock.system.arguments import InvalidArgument

if TYPE_CHECKING:
    from penstock.router.store.store import Store


async def open_store(config: RouterConfig) -> "Store | None":
    """Returns the store, ready to be used if its database can be reached now; None without one. Raises InvalidArgument
    for a database that is none, is a newer version's, or does not let this server in."""
    if not config.has_store:
        return None
    folder, url = config.data_dir, config.database_url
    from penstock.router.store.database import Database  # which imports SQLAlchemy
    from penstock.router.store.engines import StoreError
    from penstock.router.store.store import Store

    try:
        database = Database.in_folder(folder) if folder is not None else Database.at_url(str(url))
        await database.prepare()
    except StoreError as error:
        raise InvalidArgument(str(error)) from error
    return Store(database)
