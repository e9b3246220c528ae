"""For each architecture what people call its models, and checkpoints of the Hugging Face Hub, for docs/models.md."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """What an architecture is known for. `checkpoints`: names on the Hub whose config.json names the architecture; they
    are examples, written by hand, and nothing here loads them."""

    name: str
    checkpoints: tuple[str, ...] = ()


KNOWN = {
    "ArceeForCausalLM": Known("Arcee AFM", ("arcee-ai/AFM-4.5B",)),
    "BambaForCausalLM": Known("Bamba", ("ibm-ai-platform/Bamba-9B-v1",)),
    "BloomForCausalLM": Known("BLOOM", ("bigscience/bloom-560m", "bigscience/bloomz-1b1")),
    "Cohere2ForCausalLM": Known("Command R7B, Command A", (
        "CohereLabs/c4ai-command-r7b-12-2024", "CohereLabs/c4ai-command-a-03-2025")),
    "CohereForCausalLM": Known("Command R", ("CohereLabs/c4ai-command-r-v01",)),
    "DeepseekV2ForCausalLM": Known("DeepSeek V2, V2 Lite", (
        "deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-ai/DeepSeek-V2-Chat-0628")),
    "DeepseekV3ForCausalLM": Known("DeepSeek V3 and R1", ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1")),
    "Dots1ForCausalLM": Known("dots.llm1", ("rednote-hilab/dots.llm1.inst",)),
    "Ernie4_5ForCausalLM": Known("ERNIE 4.5", ("baidu/ERNIE-4.5-0.3B-PT",)),
    "Ernie4_5_MoeForCausalLM": Known("ERNIE 4.5, mixtures", ("baidu/ERNIE-4.5-21B-A3B-PT",)),
    "Exaone4ForCausalLM": Known("EXAONE 4", ("LGAI-EXAONE/EXAONE-4.0-32B",)),
    "FalconForCausalLM": Known("Falcon", ("tiiuae/falcon-7b",)),
    "FlexOlmoForCausalLM": Known("FlexOlmo", ("allenai/FlexOlmo-7x7B-1T",)),
    "GPT2LMHeadModel": Known("GPT-2", ("openai-community/gpt2", "distilbert/distilgpt2")),
    "GPTBigCodeForCausalLM": Known("StarCoder, SantaCoder", ("bigcode/starcoder", "bigcode/gpt_bigcode-santacoder")),
    "GPTJForCausalLM": Known("GPT-J", ("EleutherAI/gpt-j-6b",)),
    "GPTNeoXForCausalLM": Known("GPT-NeoX, Pythia", ("EleutherAI/gpt-neox-20b", "EleutherAI/pythia-1.4b")),
    "Gemma2ForCausalLM": Known("Gemma 2", ("google/gemma-2-2b-it", "google/gemma-2-9b")),
    "Gemma3ForCausalLM": Known("Gemma 3, of text", ("google/gemma-3-1b-it",)),
    "GemmaForCausalLM": Known("Gemma", ("google/gemma-1.1-2b-it", "google/gemma-7b")),
    "Glm4ForCausalLM": Known("GLM 4, of 2025", ("zai-org/GLM-4-9B-0414",)),
    "Glm4MoeForCausalLM": Known("GLM 4.5", ("zai-org/GLM-4.5", "zai-org/GLM-4.5-Air")),
    "Glm4MoeLiteForCausalLM": Known("GLM 4.7 Flash", ("zai-org/GLM-4.7-Flash",)),
    "GlmForCausalLM": Known("GLM 4, of 2024", ("zai-org/glm-4-9b-chat-hf",)),
    "GptOssForCausalLM": Known("gpt-oss", ("openai/gpt-oss-20b", "openai/gpt-oss-120b")),
    "GraniteForCausalLM": Known("Granite 3", ("ibm-granite/granite-3.3-8b-instruct", "ibm/PowerLM-3b")),
    "GraniteMoeForCausalLM": Known("Granite 3, mixtures", ("ibm/PowerMoE-3b",)),
    "GraniteMoeHybridForCausalLM": Known("Granite 4", (
        "ibm-granite/granite-4.0-h-tiny", "ibm-granite/granite-4.0-h-micro")),
    "GraniteMoeSharedForCausalLM": Known("Granite 4, first mixtures"),
    "HeliumForCausalLM": Known("Helium", ("kyutai/helium-1-2b",)),
    "InternLM2ForCausalLM": Known("InternLM 2", ("internlm/internlm2-chat-7b",)),
    "InternLM3ForCausalLM": Known("InternLM 3", ("internlm/internlm3-8b-instruct",)),
    "LlamaForCausalLM": Known("Llama 2 and 3, SmolLM 2", (
        "meta-llama/Llama-3.1-8B-Instruct", "HuggingFaceTB/SmolLM2-360M-Instruct")),
    "MiniMaxM2ForCausalLM": Known("MiniMax M2", ("MiniMaxAI/MiniMax-M2",)),
    "MistralForCausalLM": Known("Mistral", ("mistralai/Mistral-7B-Instruct-v0.3",)),
    "MixtralForCausalLM": Known("Mixtral", ("mistralai/Mixtral-8x7B-Instruct-v0.1",)),
    "MptForCausalLM": Known("MPT", ("ybelkada/mpt-7b-bf16-sharded",)),
    "NemotronForCausalLM": Known("Minitron, Nemotron 4", ("nvidia/Minitron-8B-Base",)),
    "OPTForCausalLM": Known("OPT", ("facebook/opt-125m", "facebook/opt-iml-max-1.3b")),
    "Olmo2ForCausalLM": Known("OLMo 2", ("allenai/OLMo-2-0425-1B", "allenai/OLMo-2-1124-7B")),
    "Olmo3ForCausalLM": Known("OLMo 3", ("allenai/Olmo-3-7B-Instruct",)),
    "OlmoForCausalLM": Known("OLMo", ("allenai/OLMo-1B-hf", "allenai/OLMo-7B-hf")),
    "OlmoeForCausalLM": Known("OLMoE", ("allenai/OLMoE-1B-7B-0924-Instruct",)),
    "Phi3ForCausalLM": Known("Phi-3, Phi-3.5, Phi-4", ("microsoft/Phi-3-mini-4k-instruct", "microsoft/phi-4")),
    "PhiForCausalLM": Known("Phi-1, Phi-1.5, Phi-2", ("microsoft/phi-1", "microsoft/phi-2")),
    "PhimoeForCausalLM": Known("Phi-3.5, mixtures"),
    "Qwen2ForCausalLM": Known("Qwen2, Qwen2.5", ("Qwen/Qwen2-7B", "Qwen/Qwen2.5-0.5B-Instruct")),
    "Qwen2MoeForCausalLM": Known("Qwen1.5 and Qwen2, mixtures", ("Qwen/Qwen1.5-MoE-A2.7B-Chat",)),
    "Qwen3ForCausalLM": Known("Qwen3", ("Qwen/Qwen3-8B",)),
    "Qwen3MoeForCausalLM": Known("Qwen3, mixtures", ("Qwen/Qwen3-30B-A3B",)),
    "Qwen3NextForCausalLM": Known("Qwen3-Next", ("Qwen/Qwen3-Next-80B-A3B-Instruct",)),
    "Qwen3_5ForCausalLM": Known("Qwen3.5, its decoder alone"),
    "Qwen3_5ForConditionalGeneration": Known("Qwen3.5, but for images", ("Qwen/Qwen3.5-27B",)),
    "Qwen3_5MoeForCausalLM": Known("Qwen3.5, mixtures, their decoder alone"),
    "SeedOssForCausalLM": Known("Seed-OSS", ("ByteDance-Seed/Seed-OSS-36B-Instruct",)),
    "SmolLM3ForCausalLM": Known("SmolLM3", ("HuggingFaceTB/SmolLM3-3B",)),
    "SolarOpenForCausalLM": Known("Solar Open", ("upstage/Solar-Open-100B",)),
    "StableLmForCausalLM": Known("StableLM", ("stabilityai/stablelm-3b-4e1t",)),
    "Starcoder2ForCausalLM": Known("StarCoder2", ("bigcode/starcoder2-3b", "bigcode/starcoder2-7b")),
    "YoutuForCausalLM": Known("Youtu-LLM", ("tencent/Youtu-LLM-2B",)),
}
KNOWN_ENCODERS = {
    "Bert": Known("BERT, MiniLM, BGE, E5, GTE of 2023", (
        "sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-base-en-v1.5", "intfloat/e5-large-v2",
        "thenlper/gte-base")),
    "Camembert": Known("CamemBERT", ("dangvantuan/sentence-camembert-base",)),
    "DebertaV2": Known("DeBERTa 3", ("microsoft/deberta-v3-base", "mixedbread-ai/mxbai-rerank-base-v1")),
    "DistilBert": Known("DistilBERT, SPLADE", (
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english", "naver/efficient-splade-VI-BT-large-query")),
    "EuroBert": Known("EuroBERT", ("EuroBERT/EuroBERT-210m",)),
    "Gte": Known("GTE of 2024, as transformers writes it", ("alibaba-nlp-community/gte-multilingual-base",)),
    "MPNet": Known("MPNet", ("sentence-transformers/all-mpnet-base-v2",)),
    "ModernBert": Known("ModernBERT", ("answerdotai/ModernBERT-base", "Alibaba-NLP/gte-modernbert-base")),
    "New": Known("GTE of 2024", ("Alibaba-NLP/gte-multilingual-base", "Alibaba-NLP/gte-multilingual-reranker-base")),
    "NomicBert": Known("Nomic Embed", ("nomic-ai/nomic-embed-text-v1.5",)),
    "Roberta": Known("RoBERTa", ("cross-encoder/stsb-roberta-base", "SamLowe/roberta-base-go_emotions")),
    "XLMRoberta": Known("XLM-RoBERTa, BGE M3, multilingual E5", (
        "BAAI/bge-m3", "BAAI/bge-reranker-v2-m3", "intfloat/multilingual-e5-base")),
}
"""The same of encoders, by what the names of their architectures begin with."""
