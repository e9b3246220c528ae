"""The architectures that decoder and encoder compute, by their names in config.json; may import kernels, models
and weights."""

from collections.abc import Callable

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.encoder_config import EncoderConfig
from penstock.shard.models.families.alibi import bloom, mpt
from penstock.shard.models.families.cohere import cohere, cohere2
from penstock.shard.models.families.deepseek import deepseek_v2, deepseek_v3, glm4_moe_lite, youtu
from penstock.shard.models.families.embedders import EMBEDDERS
from penstock.shard.models.families.encoders import (
    bert,
    deberta,
    distilbert,
    eurobert,
    gte,
    modernbert,
    mpnet,
    nomic,
    roberta,
)
from penstock.shard.models.families.falcon import falcon
from penstock.shard.models.families.gemma import gemma1, gemma2, gemma3
from penstock.shard.models.families.gpt import gpt2, gpt_bigcode, gpt_j, gpt_neox, opt
from penstock.shard.models.families.hybrids import (
    bamba,
    granite_hybrid,
    qwen3_5,
    qwen3_5_moe,
    qwen3_5_of_images,
    qwen3_next,
)
from penstock.shard.models.families.layer_normed import NEMOTRON, STARCODER2, phi2, stablelm
from penstock.shard.models.families.llama import (
    ARCEE,
    ERNIE,
    GLM,
    GLM4,
    HELIUM,
    INTERNLM2,
    INTERNLM3,
    LLAMA,
    MISTRAL,
    OLMO2,
    PHI3,
    QWEN2,
    QWEN3,
    SEED_OSS,
    exaone4,
    granite,
    olmo1,
    olmo3,
    smollm3,
)
from penstock.shard.models.families.mixtures import (
    dots1,
    ernie_moe,
    flex_olmo,
    glm4_moe,
    gpt_oss,
    granite_moe,
    minimax_m2,
    mixtral,
    olmoe,
    phimoe,
    qwen2_moe,
    qwen3_moe,
    solar_open,
)
from penstock.shard.models.keys import Keys

Family = Callable[[Keys], ModelConfig]
FAMILIES: dict[str, Family] = {
    "ArceeForCausalLM": ARCEE,
    "BambaForCausalLM": bamba,
    "BloomForCausalLM": bloom,
    "Cohere2ForCausalLM": cohere2,
    "CohereForCausalLM": cohere,
    "DeepseekV2ForCausalLM": deepseek_v2,
    "DeepseekV3ForCausalLM": deepseek_v3,
    "Dots1ForCausalLM": dots1,
    "Ernie4_5ForCausalLM": ERNIE,
    "Ernie4_5_MoeForCausalLM": ernie_moe,
    "Exaone4ForCausalLM": exaone4,
    "FalconForCausalLM": falcon,
    "FlexOlmoForCausalLM": flex_olmo,
    "GPT2LMHeadModel": gpt2,
    "GPTBigCodeForCausalLM": gpt_bigcode,
    "GPTJForCausalLM": gpt_j,
    "GPTNeoXForCausalLM": gpt_neox,
    "Gemma2ForCausalLM": gemma2,
    "Gemma3ForCausalLM": gemma3,
    "GemmaForCausalLM": gemma1,
    "Glm4ForCausalLM": GLM4,
    "Glm4MoeForCausalLM": glm4_moe,
    "Glm4MoeLiteForCausalLM": glm4_moe_lite,
    "GlmForCausalLM": GLM,
    "GptOssForCausalLM": gpt_oss,
    "GraniteForCausalLM": granite,
    "GraniteMoeForCausalLM": granite_moe,
    "GraniteMoeHybridForCausalLM": granite_hybrid,
    "GraniteMoeSharedForCausalLM": granite_moe,
    "HeliumForCausalLM": HELIUM,
    "InternLM2ForCausalLM": INTERNLM2,
    "InternLM3ForCausalLM": INTERNLM3,
    "LlamaForCausalLM": LLAMA,
    "MiniMaxM2ForCausalLM": minimax_m2,
    "MistralForCausalLM": MISTRAL,
    "MixtralForCausalLM": mixtral,
    "MptForCausalLM": mpt,
    "NemotronForCausalLM": NEMOTRON,
    "OPTForCausalLM": opt,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": olmo3,
    "OlmoForCausalLM": olmo1,
    "OlmoeForCausalLM": olmoe,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": phi2,
    "PhimoeForCausalLM": phimoe,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2MoeForCausalLM": qwen2_moe,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "Qwen3NextForCausalLM": qwen3_next,
    "Qwen3_5ForCausalLM": qwen3_5,
    "Qwen3_5ForConditionalGeneration": qwen3_5_of_images,
    "Qwen3_5MoeForCausalLM": qwen3_5_moe,
    "SeedOssForCausalLM": SEED_OSS,
    "SmolLM3ForCausalLM": smollm3,
    "SolarOpenForCausalLM": solar_open,
    "StableLmForCausalLM": stablelm,
    "Starcoder2ForCausalLM": STARCODER2,
    "YoutuForCausalLM": youtu,
}
"""The functions that read the rest of config.json, by architecture. They raise ModelConfigError."""
ENCODER_FAMILIES: dict[str, Callable[[Keys], EncoderConfig]] = {
    "Bert": bert, "Camembert": roberta, "DebertaV2": deberta, "DistilBert": distilbert, "EuroBert": eurobert,
    "Gte": gte, "MPNet": mpnet, "ModernBert": modernbert, "New": gte, "NomicBert": nomic, "Roberta": roberta,
    "XLMRoberta": roberta}
"""The families of encoders, by what the names of their architectures begin with."""
KINDS_OF_ENCODERS = "Model", "ForMaskedLM", "ForSequenceClassification"
ENCODERS: dict[str, Callable[[Keys], EncoderConfig]] = {
    f"{name}{kind}": family for name, family in ENCODER_FAMILIES.items()
    for kind in KINDS_OF_ENCODERS}
"""The same, by architecture: alone, and below the heads whose vectors and scores are made of what it computes."""
ARCHITECTURES: dict[str, Family] = {
    **FAMILIES, **ENCODERS, **{name: FAMILIES[base] for name, base in EMBEDDERS.items()}}
NAMES = (f"{', '.join(FAMILIES)}, {', '.join(EMBEDDERS)}, or an encoder's, {', '.join(ENCODER_FAMILIES)}, before "
         f"{' or '.join(KINDS_OF_ENCODERS)}")
"""The names of all of them, in words."""
OF_IMAGES = ("Qwen3_5ForConditionalGeneration",)
"""Those that read images too, whose decoder is described under `text_config`; images are not read here."""
