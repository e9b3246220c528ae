"""What is remembered of requests while they are answered, and the line that the log has of each; may import engine,
errors, generation, logs, request_id and tracing."""
