"""The failure of an answer that clients are told of."""

from penstock.router.errors import RouterError


class OutputRefused(RouterError):
    """An answer has failed the check of a name, which is empty where none could be run, for the reason that the
    `finding` tells."""

    status = 422
    error_type = "output_check"
    code = "output_check_failed"

    def __init__(self, check: str, finding: str) -> None:
        name = f"the check `{check}`" if check else "its checks"
        super().__init__(f"the answer has not passed {name}: {finding}")
