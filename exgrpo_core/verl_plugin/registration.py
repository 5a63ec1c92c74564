"""What `import verl` loads in every process (entry point `verl.plugins`): it makes this package known to verl."""

from importlib import import_module

# The platform first: verl's modules look for it when they are imported.
for _name in ("cpu_platform", "agent_loop", "replay_trainer", "fsdp_engine"):
    import_module(f"{__package__}.{_name}")
