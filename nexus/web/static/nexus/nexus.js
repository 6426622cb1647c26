// Small enhancements over pages that work without them. Each module knows one thing.
import "./times.js";
import "./live.js";
import "./bell.js";
import "./regions.js";
import "./act.js"; // before the controls, which let a form go once
import "./controls.js";
import "./toasts.js";
import "./keyboard.js";
import "./palette.js";
import "./graph.js";
import "./tail.js";
import "./draft.js";
import "./answer.js";
import "./review.js";
import "./timeline.js";
