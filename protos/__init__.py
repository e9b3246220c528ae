"""The contracts between processes, and what protoc makes of them; imports none of our packages."""
