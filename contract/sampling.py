"""How the tokens of a sequence are chosen."""

from dataclasses import dataclass

from penstock.contract.ids import Ids


@dataclass(frozen=True, slots=True)
class Sampling:
    """Says how tokens are chosen, in the order in which it is applied. The defaults are off: greedy, no penalty.

    `share_penalty` is what TGI calls frequency penalty: it weighs a token's share of all tokens so far. The frequency
    penalty is OpenAI's, for each time that a token is in the output. Each of `bias_values` is added to the score of one
    of `bias_ids`. `banned_ids` can't be sampled before output position `min_tokens`. The output never has a bad word,
    which is a sequence of tokens: all of them follow each other in `bad_word_ids`. Only `allowed_ids` are sampled,
    unless these are empty. Where bans leave nothing they do not count, and where the allowed ids leave nothing of what
    a mask allows, they do not. `branch` tells several answers to one prompt apart, which share a seed.
    """

    do_sample: bool = False
    seed: int = 0
    branch: int = 0
    watermark: bool = False
    of_logprobs: bool = False
    """Penalties, biases and masks act on log-probabilities, which nothing normalises again. Not with `do_sample`."""
    repetition_penalty: float = 1.0
    share_penalty: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias_ids: Ids = ()
    bias_values: tuple[float, ...] = ()
    banned_ids: Ids = ()
    min_tokens: int = 0
    allowed_ids: Ids = ()
    bad_word_ids: Ids = ()
    bad_word_lengths: tuple[int, ...] = ()
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    min_p: float = 0.0
    raw_logprobs: bool = False
    """Logprobs of the logits, not of the scores that tokens are sampled from."""
    top_n: int = 0
    """Top logprobs to report with each sampled token, and with each of the prompt whose logprob is wanted."""

    @property
    def reads_history(self) -> bool:
        """Tells whether a choice depends on the tokens before it, other than through the model."""
        return self.watermark or self.repetition_penalty != 1.0 or any(
            (self.share_penalty, self.frequency_penalty, self.presence_penalty))

    @property
    def needs_history(self) -> bool:
        """Tells whether the shards must know the tokens before a choice: for all that reads them, and for bad words of
        several tokens, of which the last is banned behind the others."""
        return self.reads_history or any(length > 1 for length in self.bad_word_lengths)
