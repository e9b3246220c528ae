"""Parts of a router that follow from its settings and what its group reports."""

from penstock.contract.facts import Facts
from penstock.router import environment
from penstock.router.adapters.registry import Registry
from penstock.router.config import RouterConfig
from penstock.router.generation.service import ServerInfo
from penstock.system.arguments import InvalidArgument
from penstock.system.release import VERSION


def server_info(config: RouterConfig, facts: Facts) -> ServerInfo:
    """Returns the server's description of its model and of itself."""
    return ServerInfo(model_id=config.model_id, model_sha=config.revision,
                      version=VERSION,
                      compute_type=config.compute_type or environment.compute_type(facts))


def registry_of(config: RouterConfig, facts: Facts) -> Registry:
    """Returns the adapters that requests may name. Raises InvalidArgument if there are any and the model takes none."""
    if (config.adapters or config.allow_runtime_adapters) and not facts.takes_adapters:
        option = "lora_adapters" if config.adapters else "allow_runtime_adapters"
        raise InvalidArgument(f"`{option}`: {config.model_id}, as it is computed here ({facts.implementation}), takes "
                              "no adapters; merge one into the model, or leave the option out")
    return Registry(config.adapters, config.model_id, facts.dtype, config.max_adapter_memory)
