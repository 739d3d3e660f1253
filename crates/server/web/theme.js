// Sets the chosen theme before the first paint; the default is the system's.
"use strict";

document.documentElement.dataset.theme = localStorage.getItem("cascadia.theme") ?? "system";
