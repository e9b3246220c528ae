"""How byte-level BPE tokenizers split texts before they merge, by GGUF's name, tokenizer.ggml.pre.

GGUF files have the name alone, and the other files not even that. The expressions are those of the tokenizer.json
files that llama.cpp's converter knows the names by
(https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf_update.py).
"""

from dataclasses import dataclass
from typing import Any

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+{end}|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*{end}")
_LLAMA3 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}", 1)
_QWEN35 = (rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|"
           rf"{_REST}")
_TEKKEN = _CASED.replace("{end}", "") + rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
_GPT_4O = (_CASED.replace("{end}", f"{_CONTRACTIONS}?") + rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}")
_SEED = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_REST}"
_DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
              " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
_DIGIT = r"\p{N}"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The steps before the merges."""

    splits: tuple[str, ...]              # expressions, each of which splits what the one before it left
    has_gpt2_split: bool = False         # GPT-2's own comes behind them
    keeps_words: bool = False            # a piece that is a token is that token, whatever merges say
    adds_bos: bool = False               # unless the file says otherwise
    is_composed: bool = False            # texts are brought to Unicode's NFC

    def to_json(self, adds_space: bool) -> dict[str, Any]:
        """Returns `pre_tokenizer` of tokenizer.json."""
        splits = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
                  for pattern in self.splits]
        bytes_ = {"type": "ByteLevel", "add_prefix_space": adds_space, "trim_offsets": True,
                  "use_regex": self.has_gpt2_split}
        return {"type": "Sequence", "pretokenizers": [*splits, bytes_]}


_GPT2 = PreTokenizer((), has_gpt2_split=True)
_STARCODER = PreTokenizer((_DIGIT,), has_gpt2_split=True)
_LLAMA = PreTokenizer((_LLAMA3,), keeps_words=True, adds_bos=True)
_QWEN = PreTokenizer((_QWEN2,))
PRE_TOKENIZERS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"), _LLAMA),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(("deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open"), _QWEN),
    **dict.fromkeys(("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "mpt", "olmo", "jais", "trillion",
                     "granite-docling"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _STARCODER),
    "qwen2": PreTokenizer((_QWEN2,), is_composed=True),
    "qwen35": PreTokenizer((_QWEN35,), is_composed=True),
    "tekken": PreTokenizer((_TEKKEN,), keeps_words=True, adds_bos=True),
    "gpt-4o": PreTokenizer((_GPT_4O,)),
    "seed-coder": PreTokenizer((_SEED,)),
    "deepseek-v3": PreTokenizer((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", _DIGIT)),
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+",
                             r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+",
                             "[0-9][0-9][0-9]")),
}
_NO_HAN = r"&&[^\p{Han}]"
_KIMI = (r"[\p{Han}]+|" + _CASED.replace(r"\p{M}]", rf"\p{{M}}{_NO_HAN}]").replace("{end}", f"{_CONTRACTIONS}?")
         + rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}")
KIMI = PreTokenizer((_KIMI,))
"""The pre-tokenizer of tokenization_kimi.py, for which GGUF files have no name."""
