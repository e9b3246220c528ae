"""Reads answers of gpt-oss by openai-harmony: `python harmony_reader.py VOCABULARY`, the directory of
o200k_base.tiktoken. Each line of its input is a JSON list: `["read", TEXT]` has the messages of an answer printed, and
the texts of its tokens; `["write", MESSAGES]` the text that these messages are. A message is a list of channel,
recipient, content type and text."""

import json
import os
import sys

os.environ["TIKTOKEN_ENCODINGS_BASE"] = sys.argv[1]

from openai_harmony import (
    Conversation,
    HarmonyEncodingName,
    Message,
    RenderConversationConfig,
    Role,
    load_harmony_encoding,
)

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def read(text: str) -> object:
    ids = ENCODING.encode(text, allowed_special="all")
    messages = ENCODING.parse_messages_from_completion_tokens(ids, Role.ASSISTANT, strict=False)
    told = [[message.channel, message.recipient, message.content_type, "".join(part.text for part in message.content)]
            for message in messages]
    texts, so_far = [], ""
    for number in range(1, len(ids) + 1):
        known = ENCODING.decode(ids[:number]).rstrip("\ufffd")  # a token may be a part of a character
        texts.append(known[len(so_far):])
        so_far = known
    return [told, texts]


def write(messages: list[list[str]]) -> object:
    made = []
    for channel, recipient, content_type, text in messages:
        message = Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)
        message = message.with_recipient(recipient) if recipient else message
        made.append(message.with_content_type(content_type) if content_type else message)
    conversation = Conversation.from_messages(made)
    config = RenderConversationConfig(auto_drop_analysis=False)
    return ENCODING.decode_utf8(ENCODING.render_conversation_for_training(conversation, config))


for line in sys.stdin:
    kind, value = json.loads(line)
    print(json.dumps(read(value) if kind == "read" else write(value)), flush=True)
