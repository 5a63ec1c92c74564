// What plotly.js takes from culori, with the colour spaces that figures name, and the linear one of contrasts.
import {modeHsl, modeLrgb, modeRgb, useMode} from "culori/fn";

[modeRgb, modeHsl, modeLrgb].forEach(useMode);
export {converter, formatHex, formatRgb, wcagContrast, wcagLuminance} from "culori/fn";
