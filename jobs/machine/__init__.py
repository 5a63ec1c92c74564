"""What this machine has: environments, GPUs, disk, addresses."""
