"""What queries return: plain rows."""
