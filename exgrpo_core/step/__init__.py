"""The parts of one step of Algorithm 1."""
