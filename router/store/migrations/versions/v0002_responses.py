"""Responses, and the tokens of reasoning in the answers of batches."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Makes the tables of responses and of their events, and a column."""
    op.add_column("batches", sa.Column("reasoning_tokens", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "responses",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("previous_id", sa.Text),
        sa.Column("is_background", sa.Boolean, nullable=False),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("response", sa.LargeBinary, nullable=False),
        sa.Column("item_bytes", sa.BigInteger, nullable=False),
        sa.Column("answer_name", sa.Text, nullable=False),
        sa.Column("num_events", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", sa.Float(53)),
        sa.Column("lease_faults", sa.Integer, nullable=False))
    op.create_index("responses_by_expiry", "responses", ["expires_at"])
    op.create_index("responses_by_status", "responses", ["status"])
    op.create_table(
        "response_events",
        sa.Column("response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False))
