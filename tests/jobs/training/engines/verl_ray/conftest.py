import pytest


def pytest_collection_modifyitems(items):
    """Let verl and Ray warn of themselves; warnings of this project's own code stay errors in the other tests."""
    for item in items:
        if item.get_closest_marker("verl"):
            item.add_marker(pytest.mark.filterwarnings("default"))
