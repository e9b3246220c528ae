"""The error of those who would change the models of a server that does not let them."""

from penstock.router.errors import RouterError


class ModelsFixed(RouterError):
    """A model that is to be unloaded, or an alias that is to be changed, where anybody could do so."""

    status = 403
    error_type = "models_fixed"
    metric = "validation"
    code = "models_fixed"

    def __init__(self) -> None:
        super().__init__("models can't be unloaded, and aliases can't be changed, on this server: that takes an "
                         "--api-key")
