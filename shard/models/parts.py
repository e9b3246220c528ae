"""The sizes and switches of the parts of a decoder."""

from dataclasses import dataclass
from enum import Enum

from penstock.kernels.activation import Activation
from penstock.kernels.route.form import RouteForm
from penstock.shard.models.rotary_scaling import Rotation


@dataclass(frozen=True, slots=True)
class NormConfig:
    """How rows are normalised: by their root mean square, or as layer norm does it."""

    eps: float
    is_centred: bool = False             # layer norm: the mean is taken off first
    has_weight: bool = True
    has_bias: bool = False
    offset: float = 0.0                  # added to the weights as they are stored


class Qkv(Enum):
    """How a checkpoint stores the linears q, k and v. H heads read KV heads, each H / KV of them the same; all have D
    dimensions."""

    APART = "q [H, D], k [KV, D] and v [KV, D], of their own names"
    STACKED = "one linear, [q; k; v]"
    BY_HEAD = "one linear, [H, (q, k, v), D]"
    GATED = "q with the gate of what it gets [H, (q, gate), D], k [KV, D] and v [KV, D], of their own names"
    BY_KV_HEAD = "one linear, [KV, (H / KV of q, k, v), D]"


class HeadNorm(Enum):
    """The extent of the norms of q and k before they are rotated."""

    NONE = "nothing"
    SHARED = "each head by itself, with one weight [D] for all"
    OWN = "each head by itself, with weights of its own [H, D]"
    WHOLE = "all heads of a token as one row, with a weight [H * D]"


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """How keys and values, and often queries, are stored as products of two linears (DeepSeek-AI 2024): the first makes
    a short row of a token, the latent one, which is normalised, the second all heads of it. Of q and k only the last
    dimensions turn, and those of k are the same for all heads."""

    query_rank: int                      # dimensions of the queries' latent row; 0 if they have none
    rank: int                            # of the keys' and values'
    plain_dim: int                       # of a head's q and k, what does not turn
    turned_dim: int                      # and what does
    value_dim: int


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """The attention of all blocks; what differs between them has an entry for each."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float                         # of q·k
    windows: tuple[int, ...]             # of each block, in tokens; 0 for none
    rotations: tuple[Rotation | None, ...]  # of each block; None where q and k are not rotated
    is_interleaved: bool = False         # dimension 2 i turns with 2 i + 1; otherwise i with i + R / 2
    alibi: float = 0.0                   # factor of ALiBi's slopes, by which scores fall with the distance; 0 for none
    qkv: Qkv = Qkv.APART
    head_norm: HeadNorm = HeadNorm.NONE
    qkv_bias: bool = False
    output_bias: bool = False
    softcap: float = 0.0                 # of the scores; 0 for none
    has_sinks: bool = False              # of each head, one more score in the denominator
    clip: float = 0.0                    # q, k and v go from -clip to clip; 0 for no bounds
    is_causal: bool = True               # no token sees those behind it; otherwise all see one another, within windows
    latent: LatentConfig | None = None

    @property
    def share(self) -> int:
        """Returns how many heads read one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def output_dim(self) -> int:
        """Returns how many dimensions of each head the output projection reads."""
        return self.head_dim if self.latent is None else self.latent.value_dim


@dataclass(frozen=True, slots=True)
class MlpConfig:
    """A feed-forward network of two linears, or of three where a gate multiplies."""

    inner_size: int
    activation: Activation = Activation.SILU
    is_gated: bool = True
    is_stacked: bool = False             # gate and up are stored as one linear, [gate; up]
    has_bias: bool = False


class RecurrenceLayout(Enum):
    """How a checkpoint stores what a recurrent layer makes of its input. G groups have q and k, H heads the rest."""

    APART = "[q; k; v], z, b and a, of their own names"
    BY_GROUP = "one linear [G, (q, k, H / G of v, H / G of z)] and one [G, (H / G of b, H / G of a)]"
    STACKED = "one linear, [z; v; k; q; a]"


@dataclass(frozen=True, slots=True)
class RecurrenceConfig:
    """A layer that carries a matrix [K, D] for each head from token to token, behind a short convolution: a gated delta
    net (Yang et al. 2024), or Mamba-2 (Dao and Gu 2024), which calls q, k and v C, B and x."""

    num_heads: int
    num_groups: int
    key_dim: int
    value_dim: int
    conv_width: int                      # tokens
    layout: RecurrenceLayout
    conv_bias: bool = False
    is_delta: bool = False
    steps: tuple[float, float] = (0.0, float("inf"))  # the bounds of a token's step

    @property
    def share(self) -> int:
        """Returns how many heads have the q and k of one group."""
        return self.num_heads // self.num_groups


class ExpertsLayout(Enum):
    """How a checkpoint stores the experts' linears."""

    APART = "gate, up and down of each, of names that have its number"
    STACKED = "all experts' [gate; up] [E, 2 I, C] and down [E, C, I]"
    ALTERNATING = "all experts' gate and up, row by row [E, 2 I, C], and down [E, C, I], under bare names"
    TRANSPOSED = "the same as [E, C, 2 I] and [E, I, C]"

    @property
    def is_alternating(self) -> bool:
        """Tells whether the first row is gate's, the second up's, and so on."""
        return self in (ExpertsLayout.ALTERNATING, ExpertsLayout.TRANSPOSED)


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """A mixture of gated feed-forward networks: the router chooses for each token."""

    num_experts: int
    inner_size: int
    route: RouteForm
    activation: Activation = Activation.SILU
    layout: ExpertsLayout = ExpertsLayout.APART
    has_bias: bool = False               # of the experts' linears, and of the router
    has_choice_bias: bool = False        # what is added to the scores for the choice alone
    shared_size: int = 0                 # inner size of the expert that all tokens have; 0 if there is none
    is_shared_gated: bool = False        # whether a linear of one output weighs it, by its sigmoid


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """The steps from token ids to the residual stream."""

    multiplier: float = 1.0
    num_positions: int = 0               # rows of learned positions; 0 for none
    first_position: int = 0              # the row of a sequence's first token
    has_norm: bool = False


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """The steps from the last norm's rows to logits."""

    is_tied: bool = False                # its weight is the embedding's
    has_bias: bool = False
    multiplier: float = 1.0              # of the logits
    softcap: float = 0.0                 # c replaces a logit l by c * tanh(l / c); 0 for none


PLAIN_EMBEDDING = EmbeddingConfig()
OWN_HEAD = HeadConfig()
