"""A short text with a button that copies it; for Streamlit's block of code browsers load half a megabyte."""

import json
from functools import cache

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

_SCRIPT = """export default ({data, parentElement}) => {
  const {text, words} = JSON.parse(new TextDecoder().decode(data));
  const shown = Object.assign(document.createElement("code"), {textContent: text});
  const button = Object.assign(document.createElement("button"), {textContent: "Copy", ariaLabel: words});
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(shown);
    button.textContent = document.execCommand("copy") ? "Copied" : "Copy";
  });
  parentElement.className = "copied-text";
  parentElement.replaceChildren(shown, button);
};
"""


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component("copied_text", js=_SCRIPT, isolate_styles=False)


def show(text: str, words: str, key: str) -> None:
    """Show the text; `words` say to those who cannot see the button what it copies."""
    _component()(key=key, data=json.dumps({"text": text, "words": words}).encode(), width="content")
