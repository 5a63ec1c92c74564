"""Models that are converted on this machine: GGUF files, alone or in a wheel; and chat templates."""
