"""The failures of files, batches and responses that clients are told of.

    StoreFailure
    ├── ForeignPage            403  a page of another site asks a server that has no keys
    ├── NotStored              404  one of them that is not there
    ├── Conflict               409  one of them is in a state in which that can't be done
    ├── NoStore                501  the server has no store
    ├── StoreUnavailable       503  the database can't be reached, or not in time
    └── StoreFull              507  there is no room left where the database is
"""

from penstock.router.errors import RouterError


class StoreFailure(RouterError):
    """The base of these errors."""

    error_type = "store"
    metric = "validation"


class NoStore(StoreFailure):
    status = 501
    error_type = "no_store"
    code = "no_store"

    def __init__(self) -> None:
        super().__init__("this server keeps no files, batches and responses: that takes --data-dir or --database-url")


class ForeignPage(StoreFailure):
    status = 403
    error_type = "foreign_page"
    code = "foreign_page"

    def __init__(self, origin: str) -> None:
        super().__init__("pages of other sites may not ask for files, batches and responses that a server without "
                         f"--api-key keeps, unless --cors-allow-origin names them. Given: {ascii(origin)[1:-1]:.100}")


class NotStored(StoreFailure):
    """A file, a batch or a response that was named by the field `param`, if by one."""

    status = 404
    error_type = "not_stored"
    code = "not_found"

    def __init__(self, kind: str, id: str, param: str | None = None) -> None:
        super().__init__(f"There is no {kind} `{id:.100}`")
        self.param = param


class Conflict(StoreFailure):
    """The state of a file, a batch or a response forbids a change; the message says which."""

    status = 409
    error_type = "conflict"
    code = "conflict"


class StoreUnavailable(StoreFailure):
    status = 503
    error_type = "store_unavailable"
    code = "store_unavailable"
    retry_after = 5

    def __init__(self, reason: str = "the store of files, batches and responses can't be used now") -> None:
        super().__init__(reason)


class StoreFull(StoreFailure):
    status = 507
    error_type = "store_full"
    code = "store_full"

    def __init__(self) -> None:
        super().__init__("there is no room left in the store of files, batches and responses")
