"""The settings of what is made of a text's tokens in place of more text: vectors and scores."""

from dataclasses import dataclass

from penstock.checkpoints.sentence_modules import Layer, SpladeModule
from penstock.contract.pooling import YES_NO, Task

LAST = ("lasttoken",)
"""The poolings that read no token but the last."""


@dataclass(frozen=True, slots=True)
class HeadLayer:
    """A linear of a head that scores, by the name of its tensors, with an activation and a layer norm behind it."""

    name: str
    out_features: int
    activation: str = "identity"         # of pooling.activations
    norm: str = ""                       # the name of its tensors; empty if there is none
    norm_eps: float = 0.0
    bias: str = ""                       # the whole name of the tensor, where it is not the linear's own


@dataclass(frozen=True, slots=True)
class PoolerConfig:
    """Says which vectors and scores are made, and of which tokens by which layers."""

    tasks: tuple[Task, ...]              # the first is that of a row which does not say its own
    poolings: tuple[str, ...] = LAST     # one behind the other
    layers: tuple[Layer, ...] = ()       # behind the poolings, of sentence-transformers
    of_tokens: tuple[HeadLayer, ...] = ()  # before the poolings
    head: tuple[HeadLayer, ...] = ()     # behind the poolings, of a classifier; the last one makes the scores
    score_tokens: tuple[int, ...] = ()   # whose logits score a text: that of the first, less that of a second
    splade: SpladeModule | None = None
    vocabulary: tuple[HeadLayer, ...] = ()  # before the logits of a masked language model; the last one makes these
    labels: tuple[str, ...] = ()
    activation: str = ""                 # of scores
    pad_tokens: tuple[int, ...] = ()     # no score is that of one of them at a text's end
    max_tokens: int | None = None        # of a text, as the checkpoint's files say it

    @property
    def pools_last(self) -> bool:
        """Tells whether vectors and scores depend on the last token's alone."""
        return self.poolings == LAST

    @property
    def name(self) -> str:
        """Names how the tokens' vectors become one, or scores."""
        if self.score_tokens:
            return YES_NO
        return "splade" if self.splade is not None else "+".join(self.poolings)

    def vector_size(self, hidden_size: int, vocab_size: int) -> int:
        """Returns how many numbers a vector has, of a model with these sizes; 0 if it only scores."""
        if self.splade is not None:
            return vocab_size
        if Task.CLASSIFY in self.tasks:
            return 0
        sizes = [layer.out_features for layer in self.layers if hasattr(layer, "out_features")]
        return sizes[-1] if sizes else hidden_size * len(self.poolings)
