"""How TGI behaves where that is peculiar, and how we do; each with the test that shows it."""

from dataclasses import dataclass

MATCHED, IMPROVED, NEVER = "matched", "improved", "deliberately not"


@dataclass(frozen=True, slots=True)
class Behaviour:
    text: str
    kind: str
    test: str
    """FILE::FUNCTION, below tests/."""


BEHAVIOURS = (
    Behaviour("`POST /` answers with a list, and with the prompt before the text", MATCHED,
              "router/api/tgi/test_generate.py::test_the_root_route_answers_with_a_list_and_the_prompt"),
    Behaviour("Without `parameters` an answer is sampled; with them, unless `do_sample` is true, it is not", MATCHED,
              "router/api/tgi/test_generate.py::test_it_samples_if_parameters_are_left_out"),
    Behaviour("Null is as good as absent in optional fields", MATCHED,
              "router/api/tgi/test_generate.py::test_nulls_and_neutral_values_are_as_absent"),
    Behaviour("The stop string stays in `generated_text`", MATCHED,
              "router/api/tgi/test_generate.py::test_a_stop_string_ends_the_answer_where_it_ends"),
    Behaviour("Events are `data: {…}` lines, `index` counts from 1, the last has the text and `input_length`", MATCHED,
              "router/api/tgi/test_stream.py::test_the_bytes"),
    Behaviour("Times in headers are whole milliseconds, `x-compute-time` is seconds", MATCHED,
              "router/api/tgi/test_generate.py::test_headers"),
    Behaviour("Each rule has TGI's sentence, status 422 and `validation`, and they are checked in TGI's order", MATCHED,
              "router/api/tgi/test_rules.py::test_the_first_broken_rule_is_told"),
    Behaviour("A stream that is refused has status 200 and an event with the error", MATCHED,
              "router/api/tgi/test_rules.py::test_a_stream_tells_by_an_event"),
    Behaviour("With `--strict-streaming-errors` it has the error's status", IMPROVED,
              "router/api/tgi/test_rules.py::test_a_strict_server_has_a_status_for_streams_too"),
    Behaviour("The permit of `--max-concurrent-requests` comes before the rules", MATCHED,
              "router/api/tgi/test_rules.py::test_the_permit_comes_before_the_rules"),
    Behaviour("Bodies that can't be read are refused with 400, 413, 415, 422 in plain text", MATCHED,
              "router/api/http/test_bodies.py::test_another_shape"),
    Behaviour("`tgi` as a model's name is the model served; any other name is told again", MATCHED,
              "router/api/openai/test_completions.py::test_the_model_is_named_as_asked"),
    Behaviour("A stream of completions has the usage of a prompt in its last chunk", MATCHED,
              "router/api/openai/test_completions.py::test_usage_in_the_last_chunk"),
    Behaviour("The dashboard of TGI finds all its series, with their labels and buckets", MATCHED,
              "router/api/test_metrics.py::test_all_that_the_dashboard_of_tgi_shows"),
    Behaviour("SageMaker's variables are read", MATCHED, "router/launcher/test_sagemaker.py::test_all_of_them"),
    Behaviour("Flags have TGI's variables and defaults", MATCHED,
              "router/launcher/test_options.py::test_defaults_are_those_of_tgi"),
    Behaviour("A `HOSTNAME` that is no address, as containers set it, becomes 0.0.0.0", MATCHED,
              "router/launcher/test_config.py::test_hostname_of_a_container_becomes_any"),
    Behaviour("A last message of the assistant is continued", MATCHED, "router/api/openai/test_chat.py::test_prompts"),
    Behaviour("Every chunk of a chat tells the role to clients that ask for the model `tgi`; to others the first does",
              IMPROVED, "router/api/openai/test_chat.py::test_who_is_told_the_role"),
    Behaviour("Of `max_new_tokens` no more than 1024 count against `--max-total-tokens`", MATCHED,
              "router/api/tgi/test_rules.py::test_more_than_the_chunk_is_not_counted"),
    Behaviour("`max_new_tokens` is exact beyond 1024, and nothing is queued anew", IMPROVED,
              "router/api/tgi/test_generate.py::test_more_than_a_thousand_tokens_are_counted_exactly"),
    Behaviour("Several prompts are answered in their order", IMPROVED,
              "router/api/openai/test_choices.py::test_prompts_are_answered_in_their_order"),
    Behaviour("`n` is obeyed, and the answers share the prompt's memory", IMPROVED,
              "router/engine/test_engine.py::test_answers_to_one_prompt_share_what_is_computed"),
    Behaviour("`top_p` of 1, `stop` as a text, `logit_bias` as an object, OpenAI's penalties", IMPROVED,
              "router/api/openai/test_completions.py::test_how_it_samples"),
    Behaviour("`response_format` in OpenAI's shapes too", IMPROVED,
              "router/api/openai/test_chat_grammars.py::test_a_form_of_the_answer"),
    Behaviour("Several calls of tools in one answer, streamed as they come", IMPROVED,
              "router/api/openai/test_chat_tools.py::test_calls"),
    Behaviour("An answer with calls ends with `tool_calls`; with `--tgi-tool-finish-reason` as TGI's, with `stop`",
              IMPROVED, "router/api/openai/test_chat_tools.py::test_the_end_of_an_answer_with_calls"),
    Behaviour("Schemas that can't be compiled are refused by keyword; TGI fails later", IMPROVED,
              "router/grammar/test_schema.py::test_what_the_compiler_refuses"),
    Behaviour("`chat_template.jinja` is read, and named templates", IMPROVED,
              "router/chat/test_template.py::test_order_of_files"),
    Behaviour("`/livez` and `/readyz` for Kubernetes, beside `/health`", IMPROVED,
              "router/api/tgi/test_health.py::test_alive_while_requests_advance"),
    Behaviour("A request that kills the shards fails alone; TGI fails the whole batch", IMPROVED,
              "router/engine/test_engine.py::test_a_request_that_kills_is_found_and_the_others_finish"),
    Behaviour("Stop strings are found at any character", IMPROVED,
              "router/text/test_stopping.py::test_within_a_piece_and_across_pieces"),
    Behaviour("Generated tokens are found in the prefix cache too", IMPROVED,
              "e2e/test_conversation.py::test_the_second_turn_computes_only_what_is_new"),
    Behaviour("The API key compared without regard to case", NEVER, "router/api/http/test_access.py::test_key"),
    Behaviour("`/chat_tokenize` open to those without the key", NEVER,
              "router/api/http/test_access.py::test_what_costs_something_takes_the_key"),
    Behaviour("Chats and predictions counted twice in `tgi_request_count`", NEVER,
              "router/api/clouds/test_vertex.py::test_predictions"),
    Behaviour("Usage statistics that are sent unless forbidden", NEVER,
              "router/launcher/test_options.py::test_option_without_effect_is_noted_when_given"),
    Behaviour("An adapter that is not known taken for none", NEVER, "router/api/tgi/test_rules.py::test_a_rule"),
)
