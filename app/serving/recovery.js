// Loads the page again where Streamlit's front end lost count of the page's parts, which leaves it white for good.
//
// `app/serving/streamlit_changes.py` repairs the known causes; this catches the rest. The address keeps the choices; a
// text that was not sent yet is lost with the white page. A tab tries at most five times.
addEventListener("error", ({message}) => {
  const times = Number(sessionStorage.getItem("times-recovered"));
  if (/delta path/.test(message) && times < 5) {
    sessionStorage.setItem("times-recovered", times + 1);
    location.reload();
  }
});
