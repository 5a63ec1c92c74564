"""What users do: each action writes files, never the database."""
