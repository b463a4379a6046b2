// Before anything is drawn: the theme that was chosen, if one was.
"use strict";
(function () {
  const chosen = localStorage.getItem("virta-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
