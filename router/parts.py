"""Parts of a router that follow from its settings and what its group reports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from penstock.checkpoints.sentence_transformers import read_sentence_transformer
from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router import environment
from penstock.router.adapters.registry import Registry
from penstock.router.chat import files
from penstock.router.chat.given_templates import GivenTemplates
from penstock.router.chat.template import ChatTemplate
from penstock.router.config import RouterConfig
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.generation.text_rules import TextRules
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.groups.finding import Finding
from penstock.router.groups.groups import Groups
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer
from penstock.system.arguments import InvalidArgument
from penstock.system.fields import FileError
from penstock.system.release import VERSION


def server_info(config: RouterConfig, facts: Facts) -> ServerInfo:
    """Returns the server's description of its model and of itself."""
    return ServerInfo(model_id=config.name, model_sha=config.revision,
                      version=VERSION,
                      compute_type=config.compute_type or environment.compute_type(facts))


def registry_of(config: RouterConfig, facts: Facts) -> Registry:
    """Returns the adapters that requests may name. Raises InvalidArgument if there are any and the model takes none."""
    if (config.adapters or config.allow_runtime_adapters) and not facts.takes_adapters:
        option = "lora_adapters" if config.adapters else "allow_runtime_adapters"
        raise InvalidArgument(f"`{option}`: {config.model_id}, as it is computed here ({facts.implementation}), takes "
                              "no adapters; merge one into the model, or leave the option out")
    return Registry(config.adapters, config.model_id, facts.dtype, config.max_adapter_memory)


def load_tokenizer(config: RouterConfig) -> Tokenizer:
    """Loads the model's tokenizer. Raises TokenizerError."""
    return Tokenizer.load(config.tokenizer_json, config.validation_workers)


def load_template(config: RouterConfig) -> ChatTemplate | None:
    """Loads the model's chat template, if it has one. Raises TokenizerError."""
    return ChatTemplate.load(config.model_dir, config.tokenizer_config_path)


def given_templates(config: RouterConfig) -> GivenTemplates | None:
    """Returns the reader of chat templates that clients send; None where they may not. Raises TokenizerError."""
    if not config.trust_request_chat_template:
        return None
    return GivenTemplates(files.read(config.model_dir, config.tokenizer_config_path).special_tokens)


def check_of_texts(config: RouterConfig, facts: Facts) -> None:
    """Raises InvalidArgument for a setting of texts that vectors and scores are made of, if none are."""
    given = {"auto_truncate": config.auto_truncate, "default_prompt": config.default_prompt,
             "default_prompt_name": config.default_prompt_name}
    for name in (name for name, value in given.items() if value and Task.GENERATE in facts.tasks):
        raise InvalidArgument(f"`{name}` is for models that make vectors or scores of texts, and {config.model_id} "
                              "generates text")


def text_rules(config: RouterConfig) -> TextRules:
    """Returns the rules of texts that vectors and scores are made of. Raises InvalidArgument."""
    try:
        files = read_sentence_transformer(config.model_dir)
    except FileError as error:
        raise InvalidArgument(str(error)) from error
    prompts, name, prompt = files.prompts, config.default_prompt_name, config.default_prompt
    if name is not None and name not in prompts:
        raise InvalidArgument(f"`default_prompt_name` must be one of the checkpoint's prompts, "
                              f"{', '.join(prompts) or 'of which there are none'}. Given: {name}")
    if prompt is None:
        name = files.default_prompt_name if name is None else name
        prompt = "" if name is None else prompts[name]
    return TextRules(
        prompts, prompt, includes_prompt=files.pooling is None or files.pooling.includes_prompt,
        is_lower_case=files.do_lower_case, truncates=config.auto_truncate,
        dimensions=files.truncate_dim or 0, similarity=files.similarity,
        is_normalized=files.is_normalized)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a router that drive the groups that it has found."""

    config: RouterConfig
    facts: Facts
    limits: Limits
    adapters: Registry
    metrics: Metrics
    engine: Groups
    grammars: GrammarCompiler | None

    @classmethod
    def made(
        cls, config: RouterConfig, finding: Finding, facts: Facts, count: Callable[[Facts, Limits], Metrics]
    ) -> Self:
        """Makes them of the facts of the first group; `count` makes the metrics. Raises LimitError and
        InvalidArgument."""
        check_of_texts(config, facts)
        limits, adapters = Limits.resolve(config, facts), registry_of(config, facts)
        metrics = count(facts, limits)
        grammars = None if config.disable_grammar_support else GrammarCompiler(
            config.tokenizer_json, facts.vocab_size, facts.eos_token_ids)
        return cls(config, facts, limits, adapters, metrics, finding.groups(limits, metrics, adapters), grammars)

    async def warm(self) -> None:
        """Reads now what would hold up the first answers."""
        if self.grammars is not None:
            await self.grammars.warm()

    def service(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> Service:
        """Returns the service that answers by them."""
        return Service(self.engine, tokenizer, self.metrics, server_info(self.config, self.facts),
                       PoisonMemory(self.limits.poison_memory), self.grammars, template, self.adapters,
                       self.config.allow_runtime_adapters, given_templates(self.config), text_rules(self.config))

    def close(self) -> None:
        """Ends the threads that they have."""
        if self.grammars is not None:
            self.grammars.close()
