"""What vLLM's build for the CPU needs in the environment before it is imported."""

VLLM_VARIABLES = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
"""GiB of the KV cache, threads that stay free to move, since trainer and servers share the cores, and no statistics."""
