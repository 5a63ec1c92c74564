"""The policy engine in one process: any Hugging Face causal language model on the CPU or one CUDA GPU."""
