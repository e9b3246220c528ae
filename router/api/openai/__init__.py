"""OpenAI's routes: chat completions and completions."""
