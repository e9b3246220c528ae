"""Files and batches."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the tables of files, of batches and of their lines."""
    _files()
    _batches()
    op.create_table(
        "batch_lines",
        sa.Column("batch_id", sa.Text, sa.ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("custom_id", sa.Text, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("answer", sa.LargeBinary),
        sa.UniqueConstraint("batch_id", "custom_id", name="batch_lines_once"))


def _files() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("is_whole", sa.Boolean, nullable=False))
    op.create_index("files_in_order", "files", ["created_at", "id"])
    op.create_table(
        "file_parts",
        sa.Column("file_id", sa.Text, sa.ForeignKey("files.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False))


def _batches() -> None:
    times = ("in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
             "cancelled_at")
    op.create_table(
        "batches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("endpoint", "input_file_id", "completion_window")),
        sa.Column("metadata", sa.Text),
        sa.Column("output_seconds", sa.BigInteger),
        sa.Column("model", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("errors", "output_file_id", "error_file_id")),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in times),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("total", "completed", "failed")),
        *(sa.Column(name, sa.BigInteger, nullable=False)
          for name in ("input_tokens", "cached_tokens", "output_tokens")),
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", sa.Float(53)),
        sa.Column("lease_faults", sa.Integer, nullable=False))
    op.create_index("batches_in_order", "batches", ["created_at", "id"])
    op.create_index("batches_by_status", "batches", ["status"])
