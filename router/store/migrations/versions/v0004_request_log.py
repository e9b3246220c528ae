"""Records of requests."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Makes the table of records."""
    op.create_table(
        "request_log",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("api_key", sa.Text),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False))
    op.create_index("request_log_in_order", "request_log", ["at"])
    op.create_index("request_log_by_id", "request_log", ["id"])
