"""What a page shows instead of a traceback: one sentence, and where the details are."""

import logging

import streamlit as st

from app.formats import with_code
from app.queries.answers import UnavailableError

LOG = "streamlit.error_util"
"""The log to which Streamlit writes the traceback of a failed page, before it asks what to show."""


def is_fault(record: logging.LogRecord) -> bool:
    """Return whether a record of `LOG` needs a traceback; an unavailable database does not."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnavailableError))


def show(error: Exception) -> bool:
    """Show one sentence instead of a traceback. True tells Streamlit that the error is handled.

    Several parts of a page may fail in the same run, so nothing has a key of its own.
    """
    detail = str(error).strip().splitlines()
    sentence = detail[0] if detail else type(error).__name__
    is_away = isinstance(error, UnavailableError)
    with st.container(border=True, gap="xxsmall"):
        st.markdown(f":red[:material/error:] **{'Database unavailable' if is_away else 'This page failed'}**")
        st.markdown(with_code(sentence if is_away else f"{sentence} (The server's log has the details.)"))
        st.button("Try again", icon=":material/refresh:", key=f"failure-retry-{id(error)}")
    return True
