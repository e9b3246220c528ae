from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Output(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[Output]
    SAMPLE: _ClassVar[Output]
    POOL: _ClassVar[Output]
NONE: Output
SAMPLE: Output
POOL: Output

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Facts(_message.Message):
    __slots__ = ("model_id", "dtype", "kv_dtype", "block_size", "num_blocks", "vocab_size", "eos_token_ids", "context_length", "rank", "world_size", "answers", "numerics", "kv_groups", "weights_digest", "step_tokens", "memory_id", "first_blocks", "num_states", "implementation", "keeps_bits", "takes_adapters", "draft_context", "group", "shards_here", "num_stages", "settings_digest", "tasks", "is_whole", "pools_last", "vector_size", "pooling", "labels", "activation", "token_vector_size", "pad_token_ids")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    KV_DTYPE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    KV_GROUPS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_STATES_FIELD_NUMBER: _ClassVar[int]
    IMPLEMENTATION_FIELD_NUMBER: _ClassVar[int]
    KEEPS_BITS_FIELD_NUMBER: _ClassVar[int]
    TAKES_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SHARDS_HERE_FIELD_NUMBER: _ClassVar[int]
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    POOLS_LAST_FIELD_NUMBER: _ClassVar[int]
    VECTOR_SIZE_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_VECTOR_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    dtype: str
    kv_dtype: str
    block_size: int
    num_blocks: int
    vocab_size: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    context_length: int
    rank: int
    world_size: int
    answers: bool
    numerics: str
    kv_groups: int
    weights_digest: str
    step_tokens: int
    memory_id: str
    first_blocks: int
    num_states: int
    implementation: str
    keeps_bits: bool
    takes_adapters: bool
    draft_context: int
    group: str
    shards_here: int
    num_stages: int
    settings_digest: str
    tasks: _containers.RepeatedScalarFieldContainer[str]
    is_whole: bool
    pools_last: bool
    vector_size: int
    pooling: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    activation: str
    token_vector_size: int
    pad_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model_id: _Optional[str] = ..., dtype: _Optional[str] = ..., kv_dtype: _Optional[str] = ..., block_size: _Optional[int] = ..., num_blocks: _Optional[int] = ..., vocab_size: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., context_length: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., answers: _Optional[bool] = ..., numerics: _Optional[str] = ..., kv_groups: _Optional[int] = ..., weights_digest: _Optional[str] = ..., step_tokens: _Optional[int] = ..., memory_id: _Optional[str] = ..., first_blocks: _Optional[int] = ..., num_states: _Optional[int] = ..., implementation: _Optional[str] = ..., keeps_bits: _Optional[bool] = ..., takes_adapters: _Optional[bool] = ..., draft_context: _Optional[int] = ..., group: _Optional[str] = ..., shards_here: _Optional[int] = ..., num_stages: _Optional[int] = ..., settings_digest: _Optional[str] = ..., tasks: _Optional[_Iterable[str]] = ..., is_whole: _Optional[bool] = ..., pools_last: _Optional[bool] = ..., vector_size: _Optional[int] = ..., pooling: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., activation: _Optional[str] = ..., token_vector_size: _Optional[int] = ..., pad_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthReply(_message.Message):
    __slots__ = ("steps_begun", "steps_ended", "began_seconds_ago", "ended_seconds_ago", "is_draining", "has_stream")
    STEPS_BEGUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_ENDED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_SECONDS_AGO_FIELD_NUMBER: _ClassVar[int]
    ENDED_SECONDS_AGO_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    HAS_STREAM_FIELD_NUMBER: _ClassVar[int]
    steps_begun: int
    steps_ended: int
    began_seconds_ago: float
    ended_seconds_ago: float
    is_draining: bool
    has_stream: bool
    def __init__(self, steps_begun: _Optional[int] = ..., steps_ended: _Optional[int] = ..., began_seconds_ago: _Optional[float] = ..., ended_seconds_ago: _Optional[float] = ..., is_draining: _Optional[bool] = ..., has_stream: _Optional[bool] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupState(_message.Message):
    __slots__ = ("is_draining",)
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    is_draining: bool
    def __init__(self, is_draining: _Optional[bool] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("is_draining",)
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    is_draining: bool
    def __init__(self, is_draining: _Optional[bool] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoadAdapterRequest(_message.Message):
    __slots__ = ("adapter", "path", "digest", "epoch")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    adapter: int
    path: str
    digest: str
    epoch: int
    def __init__(self, adapter: _Optional[int] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class LoadAdapterReply(_message.Message):
    __slots__ = ("num_bytes",)
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    num_bytes: int
    def __init__(self, num_bytes: _Optional[int] = ...) -> None: ...

class UnloadAdapterRequest(_message.Message):
    __slots__ = ("adapter", "epoch")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    adapter: int
    epoch: int
    def __init__(self, adapter: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class UnloadAdapterReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Order(_message.Message):
    __slots__ = ("stream_limits", "plan", "masks")
    STREAM_LIMITS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    stream_limits: StreamLimits
    plan: Plan
    masks: Masks
    def __init__(self, stream_limits: _Optional[_Union[StreamLimits, _Mapping]] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., masks: _Optional[_Union[Masks, _Mapping]] = ...) -> None: ...

class StreamLimits(_message.Message):
    __slots__ = ("epoch", "max_slots", "max_step_tokens", "max_blocks_per_slot")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCKS_PER_SLOT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    max_slots: int
    max_step_tokens: int
    max_blocks_per_slot: int
    def __init__(self, epoch: _Optional[int] = ..., max_slots: _Optional[int] = ..., max_step_tokens: _Optional[int] = ..., max_blocks_per_slot: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("step_id", "cleared_slots", "rows", "block_copies", "continued_slots", "continued_starts")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    CLEARED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COPIES_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_STARTS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    cleared_slots: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    block_copies: _containers.RepeatedCompositeFieldContainer[BlockCopy]
    continued_slots: _containers.RepeatedScalarFieldContainer[int]
    continued_starts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step_id: _Optional[int] = ..., cleared_slots: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., block_copies: _Optional[_Iterable[_Union[BlockCopy, _Mapping]]] = ..., continued_slots: _Optional[_Iterable[int]] = ..., continued_starts: _Optional[_Iterable[int]] = ...) -> None: ...

class BlockCopy(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ...) -> None: ...

class Masks(_message.Message):
    __slots__ = ("step_id", "masks")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    masks: _containers.RepeatedCompositeFieldContainer[Mask]
    def __init__(self, step_id: _Optional[int] = ..., masks: _Optional[_Iterable[_Union[Mask, _Mapping]]] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("slot", "bits")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    bits: bytes
    def __init__(self, slot: _Optional[int] = ..., bits: _Optional[bytes] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("slot", "start", "from_last_sample", "token_ids", "new_blocks", "output", "initial_state", "late_mask", "prompt_logprob_ids", "num_drafts", "num_proposals")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    FROM_LAST_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STATE_FIELD_NUMBER: _ClassVar[int]
    LATE_MASK_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROB_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    start: int
    from_last_sample: bool
    token_ids: bytes
    new_blocks: _containers.RepeatedScalarFieldContainer[int]
    output: Output
    initial_state: InitialState
    late_mask: bool
    prompt_logprob_ids: bytes
    num_drafts: int
    num_proposals: int
    def __init__(self, slot: _Optional[int] = ..., start: _Optional[int] = ..., from_last_sample: _Optional[bool] = ..., token_ids: _Optional[bytes] = ..., new_blocks: _Optional[_Iterable[int]] = ..., output: _Optional[_Union[Output, str]] = ..., initial_state: _Optional[_Union[InitialState, _Mapping]] = ..., late_mask: _Optional[bool] = ..., prompt_logprob_ids: _Optional[bytes] = ..., num_drafts: _Optional[int] = ..., num_proposals: _Optional[int] = ...) -> None: ...

class InitialState(_message.Message):
    __slots__ = ("sampling", "prompt_length", "history_ids", "side_inputs")
    class SideInputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HISTORY_IDS_FIELD_NUMBER: _ClassVar[int]
    SIDE_INPUTS_FIELD_NUMBER: _ClassVar[int]
    sampling: Sampling
    prompt_length: int
    history_ids: bytes
    side_inputs: _containers.ScalarMap[str, bytes]
    def __init__(self, sampling: _Optional[_Union[Sampling, _Mapping]] = ..., prompt_length: _Optional[int] = ..., history_ids: _Optional[bytes] = ..., side_inputs: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("do_sample", "seed", "branch", "watermark", "repetition_penalty", "share_penalty", "frequency_penalty", "presence_penalty", "bias_ids", "bias_values", "banned_ids", "min_tokens", "temperature", "top_k", "top_p", "typical_p", "min_p", "raw_logprobs", "top_n", "of_logprobs", "allowed_ids", "bad_word_ids", "bad_word_lengths")
    DO_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SHARE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    BIAS_IDS_FIELD_NUMBER: _ClassVar[int]
    BIAS_VALUES_FIELD_NUMBER: _ClassVar[int]
    BANNED_IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    RAW_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    OF_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_IDS_FIELD_NUMBER: _ClassVar[int]
    BAD_WORD_IDS_FIELD_NUMBER: _ClassVar[int]
    BAD_WORD_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    do_sample: bool
    seed: int
    branch: int
    watermark: bool
    repetition_penalty: float
    share_penalty: float
    frequency_penalty: float
    presence_penalty: float
    bias_ids: bytes
    bias_values: _containers.RepeatedScalarFieldContainer[float]
    banned_ids: bytes
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    typical_p: float
    min_p: float
    raw_logprobs: bool
    top_n: int
    of_logprobs: bool
    allowed_ids: bytes
    bad_word_ids: bytes
    bad_word_lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, do_sample: _Optional[bool] = ..., seed: _Optional[int] = ..., branch: _Optional[int] = ..., watermark: _Optional[bool] = ..., repetition_penalty: _Optional[float] = ..., share_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., bias_ids: _Optional[bytes] = ..., bias_values: _Optional[_Iterable[float]] = ..., banned_ids: _Optional[bytes] = ..., min_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., typical_p: _Optional[float] = ..., min_p: _Optional[float] = ..., raw_logprobs: _Optional[bool] = ..., top_n: _Optional[int] = ..., of_logprobs: _Optional[bool] = ..., allowed_ids: _Optional[bytes] = ..., bad_word_ids: _Optional[bytes] = ..., bad_word_lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("step_id", "rows", "slots", "token_ids", "logprobs", "forward_ns", "sample_ns", "draft_ns", "energy_uj")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_NS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_NS_FIELD_NUMBER: _ClassVar[int]
    ENERGY_UJ_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    rows: _containers.RepeatedCompositeFieldContainer[RowResult]
    slots: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    forward_ns: int
    sample_ns: int
    draft_ns: int
    energy_uj: int
    def __init__(self, step_id: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[RowResult, _Mapping]]] = ..., slots: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., forward_ns: _Optional[int] = ..., sample_ns: _Optional[int] = ..., draft_ns: _Optional[int] = ..., energy_uj: _Optional[int] = ...) -> None: ...

class RowResult(_message.Message):
    __slots__ = ("slot", "token_ids", "logprobs", "top_logprobs", "prompt_logprobs", "prompt_top_logprobs", "others", "prompt_ranks")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_RANKS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    top_logprobs: _containers.RepeatedCompositeFieldContainer[TopLogprobs]
    prompt_logprobs: _containers.RepeatedScalarFieldContainer[float]
    prompt_top_logprobs: _containers.RepeatedCompositeFieldContainer[TopLogprobs]
    others: _containers.RepeatedCompositeFieldContainer[OtherResult]
    prompt_ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., top_logprobs: _Optional[_Iterable[_Union[TopLogprobs, _Mapping]]] = ..., prompt_logprobs: _Optional[_Iterable[float]] = ..., prompt_top_logprobs: _Optional[_Iterable[_Union[TopLogprobs, _Mapping]]] = ..., others: _Optional[_Iterable[_Union[OtherResult, _Mapping]]] = ..., prompt_ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class OtherResult(_message.Message):
    __slots__ = ("kind", "value")
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    value: bytes
    def __init__(self, kind: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class TopLogprobs(_message.Message):
    __slots__ = ("ids", "logprobs")
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ...) -> None: ...
