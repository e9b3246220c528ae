"""The use that keys have made of models, and the keys of batches and responses."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NUMBERS = ("requests", "input_tokens", "computed_tokens", "cached_tokens", "replayed_tokens", "drafted_tokens",
            "accepted_tokens", "output_tokens", "kept_tokens", "step_us", "kv_token_ms", "nanos")


def upgrade() -> None:
    """Makes the tables of use, and columns for the names of keys."""
    op.create_table(
        "usage",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("day", "api_key", "model", "currency")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _NUMBERS))
    op.create_table(
        "usage_writers",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("written_at", sa.Float(53), nullable=False))
    for table in ("batches", "responses"):
        op.add_column(table, sa.Column("api_key", sa.Text))
