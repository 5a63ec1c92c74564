"""The person of the current request, from Streamlit's session."""

import streamlit as st

from app import settings
from app.roles import LINK_HOLDER, Person


def current_person() -> Person | None:
    """Return the person of this session; None if people sign in and this one has not, or has no role."""
    roles = settings.current().roles
    return LINK_HOLDER if roles is None else roles.person_of(st.user.to_dict())
