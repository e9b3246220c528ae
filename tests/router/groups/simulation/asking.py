"""What clients ask for, and the answer that they must get."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.router.generation.parameters import Parameters
from penstock.router.generation.spec import GenerationSpec
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.text.tokenizer import Tokenizer
from tests.router.groups.simulation.grammars import PlaceGrammar
from tests.router.groups.simulation.oracle import ALL, EOS, STOP, Truth, begin

STOP_AT, STOP_TEXT = 9, " 9."
"""The token whose text is a stop string, for those who have one."""


@dataclass(slots=True)
class Ask:
    """A client's request for `num_answers` to one prompt. What is None of the seed is drawn by the router."""

    number: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    seed: int | None
    num_answers: int = 1
    grammar: PlaceGrammar | None = None
    adapter: str | None = None
    ignore_eos: bool = False
    has_stop_token: bool = False
    has_stop_text: bool = False
    wants_prompt_logprobs: bool = False
    kills_at: int | None = None
    """The position whose token is the death of the group that computes it."""

    def spec(self) -> GenerationSpec:
        """Returns what the router's APIs would make of it."""
        grammar = None if self.grammar is None else GrammarSpec("regex", f"{self.grammar.kind} {self.grammar.length}")
        return GenerationSpec(
            self.prompt, Parameters(
                do_sample=True, max_new_tokens=self.max_new_tokens, seed=self.seed, ignore_eos=self.ignore_eos,
                stop_token_ids=[STOP] if self.has_stop_token else [], grammar=grammar,
                stop=[STOP_TEXT] if self.has_stop_text else []),
            n=self.num_answers, wants_prompt_logprobs=self.wants_prompt_logprobs, adapter=self.adapter)

    def allowed(self, place: int) -> int:
        return ALL if self.grammar is None else self.grammar.allowed(place)

    def ending(self, tokens: Sequence[int]) -> FinishReason | None:
        """Returns why the answer ends with the last of its tokens, if it does."""
        if self.has_stop_text and tokens[-1] == STOP_AT:
            return FinishReason.STOP_SEQUENCE
        if len(tokens) == self.max_new_tokens:
            return FinishReason.LENGTH
        if (tokens[-1] == EOS and not self.ignore_eos) or (tokens[-1] == STOP and self.has_stop_token):
            return FinishReason.EOS_TOKEN
        is_over = self.grammar is not None and len(tokens) == self.grammar.length
        return FinishReason.EOS_TOKEN if is_over else None


@dataclass(slots=True)
class Expected:
    """Follows an answer as the model gives it; `model` names weights, numerics and adapter."""

    ask: Ask
    seed: int
    branch: int
    output: list[int] = field(default_factory=list)
    model: tuple[str, str, str] | None = None
    truth: Truth | None = None

    def differs(self, sampled: Sampled, model: tuple[str, str, str]) -> str | None:
        """Takes the answer's next token, that this model gave; says what is wrong about it, or returns None."""
        ask = self.ask
        if self.model != model or self.truth is None:
            self.model, self.truth = model, Truth(begin(*model), (*ask.prompt, *self.output))
        if self.output and ask.ending(self.output) is not None:
            return f"token {len(self.output)} comes behind the answer's end"
        token_id, logprob = self.truth.next(self.seed, self.branch, ask.allowed(len(self.output)))
        if sampled.token_id != token_id:
            return f"token {len(self.output)} is {sampled.token_id}, and must be {token_id}"
        if sampled.logprob != logprob:
            return f"the logprob of token {len(self.output)} is {sampled.logprob}, and must be {logprob}"
        self.truth.append(token_id)
        self.output.append(token_id)
        return None


class PlainTokenizer(Tokenizer):
    """Makes a text of each token by itself."""

    def __init__(self) -> None:
        """There is nothing to load."""
        self.digest = "plain"

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(f" {token_id}." for token_id in token_ids)

    def is_special(self, token_id: int) -> bool:
        return False


class PlaceGrammars:
    """Compiles what `Ask.spec` has made of a grammar."""

    async def compile(self, spec: GrammarSpec) -> PlaceGrammar:
        return PlaceGrammar(*map(int, spec.source.split()))
