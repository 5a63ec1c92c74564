"""The fields of New run's form in a page under test."""

KINDS = ("text_input", "number_input", "toggle", "selectbox", "multiselect", "text_area")


def field(page, path):
    """Return the widget of a field, such as `optim.learning_rate`, that the open section shows."""
    key = page.session_state["new-run-form"].key(path)
    return next(widget for kind in KINDS for widget in page.get(kind) if widget.key == key)
