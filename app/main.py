"""Entry script of the workbench: its pages and what stands on all of them."""

from pathlib import Path

import streamlit as st

from app import address, theme
from app.components.widgets import database_banner, person_line, supervisor_banner

st.set_page_config(
    page_title="ExGRPO Workbench",
    page_icon=theme.ICON,
    layout="wide",
    initial_sidebar_state=224,
    menu_items={"About": "**ExGRPO Workbench**: run ExGRPO training, and see what its replay buffer does."},
)
st.html(Path(__file__).parent / "style.css")
st.logo(theme.LOGO, size="large", icon_image=theme.ICON)
page = st.navigation(
    {
        "Runs": [
            st.Page("app_pages/runs.py", title="Runs", icon=":material/list_alt:", default=True),
            st.Page("app_pages/new_run.py", title="New run", icon=":material/add_circle:"),
            st.Page("app_pages/run.py", title="Run", icon=":material/monitoring:"),
            st.Page("app_pages/compare.py", title="Compare", icon=":material/compare_arrows:"),
        ],
        "Experience": [
            st.Page("app_pages/replay_buffer.py", title="Replay buffer", icon=":material/replay:"),
            st.Page("app_pages/trajectories.py", title="Trajectories", icon=":material/article:"),
            st.Page("app_pages/selection_audit.py", title="Selection audit", icon=":material/fact_check:"),
        ],
        "Evidence": [
            st.Page("app_pages/snowball.py", title="Snowball", icon=":material/ac_unit:"),
            st.Page("app_pages/entropy_and_judge.py", title="Entropy and judge", icon=":material/gavel:"),
            st.Page("app_pages/benchmarks.py", title="Benchmarks", icon=":material/leaderboard:"),
            st.Page("app_pages/studies.py", title="Studies", icon=":material/science:"),
        ],
        "Workbench": [st.Page("app_pages/system.py", title="System", icon=":material/dns:")],
    }
)
address.keep()
person_line.show()
database_banner.show()
supervisor_banner.show()
page.run()
