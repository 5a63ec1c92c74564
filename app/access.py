"""Who asks at this moment, as Streamlit's own session knows it."""

import streamlit as st

from app import settings
from app.roles import LINK_HOLDER, Person


def current_person() -> Person | None:
    """Return who uses this session; None where people sign in and this one has not, or has no role."""
    roles = settings.current().roles
    return LINK_HOLDER if roles is None else roles.person_of(st.user.to_dict())
