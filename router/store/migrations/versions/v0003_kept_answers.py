"""Answers that are kept for equal requests."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the table of kept answers."""
    op.create_table(
        "kept_answers",
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("kept_at", sa.Float(53), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False))
    op.create_index("kept_answers_by_age", "kept_answers", ["kept_at"])
