// The structs of abi.h's functions. A field a line, for kernels/native.py reads them too.
#pragma once

#include <cstdint>

extern "C" {

// Weights are packed; a bias or a head's norm may be null.
struct AttentionLayer {
  int64_t width;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t half;  // of the dimensions that are rotated
  int64_t window;
  float scale;
  float eps;
  const void* norm;
  int64_t norm_dtype;
  const void* qkv;
  const void* qkv_bias;
  int64_t qkv_bias_dtype;
  const void* q_norm;
  int64_t q_norm_dtype;
  const void* k_norm;
  int64_t k_norm_dtype;
  const float* cos;
  const float* sin;
  const void* output;
  const void* output_bias;
  int64_t output_bias_dtype;
  int64_t qkv_site;
  int64_t output_site;
};

struct MlpLayer {
  int64_t width;
  int64_t inner;
  float eps;
  const void* norm;
  int64_t norm_dtype;
  const void* gate_up;
  const void* gate_up_bias;
  int64_t gate_up_bias_dtype;
  const void* down;
  const void* down_bias;
  int64_t down_bias_dtype;
  int64_t gate_up_site;
  int64_t down_site;
};

// A block of an encoder. A norm's bias may be null, and if the block is not of post-norm its first norm; bias [num_heads,
// 2 * reach + 1] as of penstock_full_attention; half 0: nothing is rotated. The activation is of a gate, or of all inner
// numbers.
struct EncoderLayer {
  int64_t width;
  int64_t inner;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t half;
  int64_t window;
  int64_t reach;
  int64_t activation;
  int64_t is_gated;
  int64_t is_post_norm;
  float scale;
  float attention_eps;
  float feed_forward_eps;
  const float* bias;
  const float* cos;
  const float* sin;
  const void* attention_norm;
  const void* attention_norm_bias;
  int64_t attention_norm_dtype;
  const void* feed_forward_norm;
  const void* feed_forward_norm_bias;
  int64_t feed_forward_norm_dtype;
  const void* qkv;
  const void* qkv_bias;
  int64_t qkv_bias_dtype;
  const void* output;
  const void* output_bias;
  int64_t output_bias_dtype;
  const void* gate_up;
  const void* gate_up_bias;
  int64_t gate_up_bias_dtype;
  const void* down;
  const void* down_bias;
  int64_t down_bias_dtype;
  int64_t qkv_site;
  int64_t output_site;
  int64_t gate_up_site;
  int64_t down_site;
};

// A CodedWeight of kernels/quantised_linear; what it does not have is null.
struct CodedWeight {
  int64_t outputs;
  int64_t inputs;
  int64_t segments;
  int64_t start;
  int64_t group;
  int64_t span;
  int64_t bits;
  int64_t zero;
  int64_t is_whole;  // whether activations are whole numbers of 8 bits
  const uint8_t* codes;
  const float* scales;
  const int16_t* zeros;
  const float* table;
  const float* minima;
  const int16_t* factors;
  const int16_t* offsets;
};

// Of each expert the packed weights and the inner width; bias [experts, 2 * inner], if there is one for all. They are
// ascending by number in the sums.
struct Experts {
  int64_t count;
  int64_t width;
  int64_t outputs;
  int64_t activation;
  const void* const* gate_up;
  const int64_t* inner;
  const void* const* down;
  const void* bias;
  int64_t bias_dtype;
};

// A mixture and its norm. router gives the logits of as many experts as it has outputs, shared_gate, if it is not null, that
// of the shared expert, which is the first of `experts` where there is one.
struct MixtureLayer {
  int64_t width;
  float eps;
  const void* norm;
  int64_t norm_dtype;
  const void* router;
  const void* router_bias;
  int64_t router_bias_dtype;
  const float* choice_bias;
  int64_t scoring;
  int64_t top_k;
  int64_t is_normalised;
  float scale;
  int64_t groups;
  int64_t top_groups;
  int64_t group_best;
  float jitter;
  int64_t has_shared;
  const void* shared_gate;
  const Experts* experts;
};

// As kernels/recurrence/heads.py; skip may be null.
struct RecurrentHeads {
  int64_t heads;
  int64_t groups;
  int64_t key_dim;
  int64_t value_dim;
  int64_t is_delta;
  float min_step;
  float max_step;
  const float* rate;
  const float* bias;
  const float* skip;
};

// What an adapter has for one linear, as kernels/lora/adapter.py lays it out; of rank 0, nothing. panels [outputs / 16, 3].
struct LoraLinear {
  int64_t inputs;
  int64_t outputs;
  int64_t segments;
  int64_t width;
  int64_t rank;
  int64_t dtype;
  const void* a;
  const void* b;
  const int64_t* panels;
  const float* scales;
};

// The adapter of each row: its number, -1 for none; table [groups, sites].
struct AdapterRows {
  int64_t num_tokens;
  int64_t num_sites;
  int64_t num_groups;
  const int32_t* groups;
  const LoraLinear* table;
};

struct AttentionMetadata {
  int64_t num_tokens;
  int64_t num_sequences;
  int64_t max_blocks;
  const int64_t* positions;
  const int64_t* slot_mapping;
  const int32_t* tables;
  const int32_t* starts;
  const int32_t* counts;
};

// logits [rows, vocabulary], masks [num_masks, words of 32 tokens]; offsets [rows + 1], top_ids and top_logprobs
// [rows, top_width], the rest [rows]. A history is read by rows with penalties.
struct SampleBatch {
  int64_t rows;
  int64_t vocabulary;
  const float* logits;
  const uint8_t* do_sample;
  const uint8_t* of_logprobs;
  const int64_t* seed;
  const int64_t* position;
  const int64_t* branch;
  const float* repetition_penalty;
  const float* share_penalty;
  const float* frequency_penalty;
  const float* presence_penalty;
  const float* temperature;
  const int64_t* top_k;
  const float* top_p;
  const float* typical_p;
  const float* min_p;
  const int64_t* prompt_length;
  const int64_t* mask;
  const int64_t* top_n;
  int64_t history_length;
  const int64_t* history_ids;
  const int64_t* history_offsets;
  int64_t num_biases;
  const int64_t* bias_ids;
  const float* bias_values;
  const int64_t* bias_offsets;
  int64_t num_masks;
  const uint32_t* masks;
  int64_t top_width;
  int64_t* ids;
  float* logprobs;
  int64_t* top_ids;
  float* top_logprobs;
};

}
