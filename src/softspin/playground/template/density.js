// One soft bit: the two densities and their mixture, for any beta, q and family.

const soft = { family: "", beta: 1, chance: 0.5, shift: 0, of: null };
const SOFTEST = 0.5; // minimum of the slider, above the lower limit of the family
const SHARPEST = 400; // 1/width² of the narrowest shifted Gaussian

function startDensity() {
  if (!model.smoothing) { // the method has no smoothing
    document.querySelectorAll('[data-panel="density"], [data-of="density"]').forEach((one) => one.remove());
    return;
  }
  $("family").append(...Object.entries(FAMILIES).map(([name, { title }]) => new Option(title, name)));
  $("family").addEventListener("change", (event) => { soft.family = event.target.value; changed(); });
  $("beta").addEventListener("input", (event) => { soft.beta = betaAt(event.target.value); changed(); });
  $("chance").addEventListener("input", (event) => { soft.chance = Number(event.target.value); changed(); });
  $("own").addEventListener("click", () => { soft.of = null; changed(); });
}

// The slider is in log beta, from slightly above the lower limit of the family.
function ends() {
  return [Math.log(SOFTEST + FAMILIES[soft.family].lowest), Math.log(Math.max(SHARPEST, 2 * model.smoothing.beta))];
}

function betaAt(share) {
  const [low, high] = ends();
  return Math.exp(low + share * (high - low));
}

// Use the values of the selected bit in the model, until a slider is moved.
function adopt() {
  const { smoothing } = model;
  const key = `${state.unit},${state.q[state.unit]}`;
  if (soft.of === key) return;
  const beta = smoothing.width ? smoothing.width[state.unit] ** -2 : smoothing.beta;
  const [chance, shift] = [state.q[state.unit], state.shift[state.unit]];
  Object.assign(soft, { of: key, family: smoothing.family, beta, chance, shift });
}

function showDensity() {
  if (!$("density")?.offsetParent) return; // on another tab, or there is none
  adopt();
  const family = FAMILIES[soft.family];
  const [low, high] = ends();
  soft.beta = Math.max(soft.beta, Math.exp(low));
  $("family").value = soft.family;
  $("beta").value = (Math.log(soft.beta) - low) / (high - low);
  $("chance").value = soft.chance;
  $("beta-value").textContent = soft.beta.toFixed(1);
  $("chance-value").textContent = soft.chance.toFixed(2);
  const given = { ...model.smoothing, ...soft };
  const shift = soft.family === "shifted_gaussian" ? ` Shift of this bit: ${signed(soft.shift)}.` : "";
  const whose = soft.family === model.smoothing.family ? "the model's smoothing" : "not the model's smoothing";
  const mirrored = family.line || family.spike ? "" : ", r(ζ|1) its mirror image";
  const formula = `${family.formula}${mirrored}`;
  $("density-words").textContent = `${nameOf(state.unit)}, ${family.title}, ${whose}. ${formula}.${shift}`;
  drawDensity(given, family);
}

function drawDensity(given, family) {
  const height = 240;
  const { context, width } = plotting($("density"), height);
  const [from, to] = family.line ? [-1, 2] : [0, 1];
  const frame = { left: 40, right: width - 10, top: 10, bottom: height - 34 };
  const [lowest, highest] = [-2, 2.3]; // powers of ten
  const x = (zeta) => frame.left + ((zeta - from) / (to - from)) * (frame.right - frame.left);
  const y = (density) => {
    const power = Math.max(lowest - 1, Math.min(highest, Math.log10(density))); // lower values are clipped
    return frame.bottom - ((power - lowest) / (highest - lowest)) * (frame.bottom - frame.top);
  };
  context.strokeStyle = css("line");
  context.fillStyle = css("soft");
  context.lineWidth = 1;
  context.textAlign = "right";
  ["0.01", "0.1", "1", "10", "100"].forEach((text) => {
    const at = Math.round(y(Number(text))) + 0.5;
    context.beginPath();
    context.moveTo(frame.left, at);
    context.lineTo(frame.right, at);
    context.stroke();
    context.fillText(text, frame.left - 6, at + 4);
  });
  context.textAlign = "center";
  (family.line ? [-1, 0, 1, 2] : [0, 0.25, 0.5, 0.75, 1]).forEach((zeta) => context.fillText(zeta, x(zeta), height - 18));
  context.fillText("ζ, the soft bit (density on a log scale)", (frame.left + frame.right) / 2, height - 3);

  const points = Array.from({ length: 601 }, (_, i) => from + ((to - from) * (i + 0.5)) / 601);
  const curve = (density, colour, dash, thickness) => {
    Object.assign(context, { strokeStyle: css(colour), lineWidth: thickness });
    context.setLineDash(dash);
    context.beginPath();
    points.forEach((zeta) => context.lineTo(x(zeta), y(density(zeta))));
    context.stroke();
    context.setLineDash([]);
  };
  context.save();
  context.beginPath();
  context.rect(frame.left, 0, frame.right - frame.left, frame.bottom);
  context.clip();
  curve((zeta) => mixtureDensity(given, soft.chance, zeta), "ink", [], 4);
  if (!family.spike) curve((zeta) => Math.exp(logDensities(given, zeta)[0]), "blue", [], 2);
  curve((zeta) => Math.exp(logDensities(given, zeta)[1]), "orange", [7, 4], 2);
  context.restore();
  if (family.spike) spike(context, x(0), frame);
}

// Point masses are not densities: an arrow at 0, labelled with the mass.
function spike(context, at, frame) {
  context.strokeStyle = css("blue");
  context.fillStyle = css("blue");
  context.lineWidth = 3;
  context.beginPath();
  context.moveTo(at + 2, frame.bottom);
  context.lineTo(at + 2, frame.top + 10);
  context.stroke();
  context.beginPath();
  context.moveTo(at - 4, frame.top + 12);
  context.lineTo(at + 2, frame.top);
  context.lineTo(at + 8, frame.top + 12);
  context.fill();
  context.textAlign = "left";
  const share = (1 - soft.chance).toFixed(2);
  const words = `point mass at 0: all of r(ζ|0), ${share} of the mixture`;
  context.fillText(words, at + 14, frame.top + 12, frame.right - at - 14); // condensed on narrow screens
}

views.push(showDensity);
