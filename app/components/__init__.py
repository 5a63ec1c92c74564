"""What pages are made of: each shows one thing and returns what the reader chose."""
