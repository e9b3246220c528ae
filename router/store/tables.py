"""The tables of the database, as the newest migration leaves them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()

FILES = Table(
    "files", METADATA,
    Column("id", Text, primary_key=True),
    Column("created_at", BigInteger, nullable=False),  # in microseconds, for files have an order
    Column("expires_at", BigInteger),  # in seconds, as all other times
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("is_whole", Boolean, nullable=False),
    Index("files_in_order", "created_at", "id"),
)
"""The files. One that is not whole is being written, or its writer is gone."""

PARTS = Table(
    "file_parts", METADATA,
    Column("file_id", Text, ForeignKey("files.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
"""The contents of files, in parts, from the number 0 on."""

BATCHES = Table(
    "batches", METADATA,
    Column("id", Text, primary_key=True),
    Column("created_at", BigInteger, nullable=False),  # in microseconds, for batches have an order
    Column("endpoint", Text, nullable=False),
    Column("input_file_id", Text, nullable=False),
    Column("completion_window", Text, nullable=False),
    Column("metadata", Text),  # JSON
    Column("output_seconds", BigInteger),
    Column("model", Text),
    Column("status", Text, nullable=False),
    Column("errors", Text),  # JSON
    Column("output_file_id", Text),
    Column("error_file_id", Text),
    Column("expires_at", BigInteger, nullable=False),
    Column("in_progress_at", BigInteger),
    Column("finalizing_at", BigInteger),
    Column("completed_at", BigInteger),
    Column("failed_at", BigInteger),
    Column("expired_at", BigInteger),
    Column("cancelling_at", BigInteger),
    Column("cancelled_at", BigInteger),
    Column("total", Integer, nullable=False),
    Column("completed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False, server_default="0"),  # of those
    Column("lease_owner", Text),
    Column("lease_until", Float(53)),
    Column("lease_faults", Integer, nullable=False),
    Column("api_key", Text),  # its name
    Index("batches_in_order", "created_at", "id"),
    Index("batches_by_status", "status"),
)
"""The batches. Who has the lease works on a batch, until the database's clock is past `lease_until`; `lease_faults`
tells how often that has failed since an answer was stored."""

LINES = Table(
    "batch_lines", METADATA,
    Column("batch_id", Text, ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("custom_id", Text, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("answer", LargeBinary),  # a line of the output
    UniqueConstraint("batch_id", "custom_id", name="batch_lines_once"),
)
"""The lines of batches that run, by their numbers in the input."""

WAITING, COMPLETED, FAILED = 0, 1, 2
"""The states of a line."""

RESPONSES = Table(
    "responses", METADATA,
    Column("id", Text, primary_key=True),
    Column("created_at", BigInteger, nullable=False),  # in seconds, as all times here
    Column("expires_at", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("previous_id", Text),
    Column("is_background", Boolean, nullable=False),
    Column("request", LargeBinary, nullable=False),  # JSON
    Column("response", LargeBinary, nullable=False),  # JSON
    Column("item_bytes", BigInteger, nullable=False),  # of the items that came in and went out
    Column("answer_name", Text, nullable=False),
    Column("num_events", Integer, nullable=False),
    Column("lease_owner", Text),
    Column("lease_until", Float(53)),
    Column("lease_faults", Integer, nullable=False),
    Column("api_key", Text),  # its name
    Index("responses_by_expiry", "expires_at"),
    Index("responses_by_status", "status"),
)
"""The responses. Those of the background are made by whoever has the lease, as batches are."""

RESPONSE_EVENTS = Table(
    "response_events", METADATA,
    Column("response_id", Text, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),  # of the first
    Column("content", LargeBinary, nullable=False),
)
"""The events of responses of the background, several in a row: compressed JSON, a line for each."""

KEPT_ANSWERS = Table(
    "kept_answers", METADATA,
    Column("key", LargeBinary, primary_key=True),
    Column("kept_at", Float(53), nullable=False),  # by the database's clock
    Column("bytes", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("kept_answers_by_age", "kept_at"),
)
"""The answers that are kept for equal requests."""

REQUEST_LOG = Table(
    "request_log", METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("route", Text, nullable=False),
    Column("model", Text),
    Column("api_key", Text),  # its name
    Column("status", Integer, nullable=False),
    Column("record", Text, nullable=False),  # JSON
    Index("request_log_in_order", "at"),
    Index("request_log_by_id", "id"),
)
"""The records of requests; an id that a client gives may come twice."""

USE = Table(
    "usage", METADATA,
    Column("day", Text, primary_key=True),  # as 2026-11-29, by UTC
    Column("api_key", Text, primary_key=True),  # its name; empty without one
    Column("model", Text, primary_key=True),
    Column("currency", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("computed_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("replayed_tokens", BigInteger, nullable=False),
    Column("drafted_tokens", BigInteger, nullable=False),
    Column("accepted_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("kept_tokens", BigInteger, nullable=False),
    Column("step_us", BigInteger, nullable=False),
    Column("kv_token_ms", BigInteger, nullable=False),
    Column("nanos", BigInteger, nullable=False),  # billionths of the currency
)
"""The use that requests have made of models."""

USE_WRITERS = Table(
    "usage_writers", METADATA,
    Column("writer", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("written_at", Float(53), nullable=False),  # by the database's clock
)
"""The last part of its use that each process has added, so that none is added twice."""
