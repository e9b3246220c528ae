"""The failures of accounts that clients are told of.

    RouterError
    ├── BudgetSpent            429  a key has spent its budget of the day
    └── NoAccounts             501  the server keeps no accounts
"""

from penstock.router.errors import RouterError


class BudgetSpent(RouterError):
    """A key has spent what it may spend in a day; `seconds` are left until the next."""

    status = 429
    error_type = "budget_spent"
    metric = "overloaded"
    code = "insufficient_quota"

    def __init__(self, message: str, seconds: int) -> None:
        super().__init__(message)
        self.retry_after = seconds


class NoAccounts(RouterError):
    status = 501
    error_type = "no_accounts"
    metric = "validation"
    code = "no_accounts"

    def __init__(self) -> None:
        super().__init__("this server keeps no accounts: that takes --prices")
