"""Register chains: short arithmetic programs whose every chain of thought can be checked exactly."""
