"""Entry script of the workbench: the navigation, and the banners that all pages have."""

import streamlit as st

from exgrpo.app import address, settings, theme
from exgrpo.app.components.widgets import page_frame
from exgrpo.app.page_list import NOT_IN_VIEWS, OF_REPLAYS, PAGES
from exgrpo.app.queries.runs import has_replays

st.set_page_config(
    page_icon=theme.ICON,
    layout="wide",
    initial_sidebar_state=224,
    menu_items={"About": "**ExGRPO Workbench**: run ExGRPO training, and see what its replay buffer does."},
)
st.logo(theme.LOGO, size="large", icon_image=theme.ICON)
hidden: frozenset[str] = frozenset()
if settings.current().is_view:
    hidden = NOT_IN_VIEWS if has_replays() else NOT_IN_VIEWS | OF_REPLAYS
page = st.navigation(
    [
        st.Page(
            entry.file,
            title=entry.title,
            icon=f":material/{entry.icon}:",
            default=entry is PAGES[0],
            visibility="hidden" if entry.name in hidden else "visible",
        )
        for entry in PAGES
    ]
)
page_frame.show_title(page.title)
address.keep()
page_frame.show_person()
page_frame.show_supervisor()
page_frame.show_share()
page.run()
