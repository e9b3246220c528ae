"""The parts of the router that answer the requests to one model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.contract.facts import Facts
from penstock.router.adapters.registry import Registry
from penstock.router.chat.given_templates import GivenTemplates
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.generation.around import NOTHING, Around
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.text_rules import TextRules
from penstock.router.generation.validation import Grammars
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Tells of a model and its server; `compute_type` is the header `x-compute-type` of every answer."""

    model_id: str
    version: str
    compute_type: str
    model_sha: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Holds the parts of a router that serve one model."""

    engine: AnyEngine
    tokenizer: Tokenizer
    metrics: Metrics
    info: ServerInfo
    poison: PoisonMemory
    grammars: Grammars | None = None
    """None where grammars are switched off."""
    template: ChatTemplate | None = None
    """None where the model has no chat template."""
    adapters: Registry = field(default_factory=Registry)
    allows_runtime_adapters: bool = False
    """Whether clients may load and unload adapters."""
    given_templates: GivenTemplates | None = None
    """Reads the chat templates that clients send; None where they may not."""
    texts: TextRules = field(default_factory=TextRules)
    """The rules of texts that vectors and scores are made of."""
    around: Around = NOTHING
    """The parts that stand around the generation of answers."""

    @property
    def limits(self) -> Limits:
        """The limits of requests now."""
        return self.engine.limits

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts of the checkpoint, by name, which stand before texts."""
        return self.texts.prompts

    @property
    def facts(self) -> Facts:
        """Those of the model, as its largest group computes it."""
        return self.engine.facts

    def serves(self, name: str | None) -> bool:
        """Tells whether this is the name of the model or of one of its adapters, loaded or unloaded."""
        return name == self.info.model_id or name in self.adapters or name in self.adapters.removed
