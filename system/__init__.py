"""What the operating system tells every process; imports none of our packages."""
