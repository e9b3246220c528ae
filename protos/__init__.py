"""The contracts between processes, and what protoc makes of them. Imports nothing of ours."""
