"""Models that are converted on this machine: GGUF files, alone or in a wheel of a package index."""
