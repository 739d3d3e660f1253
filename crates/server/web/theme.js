// Sets the chosen look before anything is painted; without a choice the system's is used.
"use strict";

document.documentElement.dataset.theme = localStorage.getItem("cascadia.theme") ?? "system";
