// What is known of the model, the page's test of itself, and the start.

function number(value, digits = 2) {
  return value === null || value === undefined ? "unknown" : value.toFixed(digits);
}

function intervalText(low, high, least, most) {
  return `${low === null ? least : number(low)} to ${high === null ? most : number(high)}`;
}

function nllText(result) {
  const error = result.standard_error === null ? "" : ` ± ${number(result.standard_error)}`;
  return `${number(result.nll)}${error} nats`;
}

function logZText(result) {
  if (result.log_z_low !== null && result.log_z_low === result.log_z_high) return `${number(result.log_z)} (exact)`;
  return `${number(result.log_z)}, interval ${intervalText(result.log_z_low, result.log_z_high, "−∞", "∞")}`;
}

// [what, value] pairs, in the order in which they are told.
function factsOf({ facts, units, groups, bits, height, width }) {
  const { result, trained_by: made } = facts;
  const told = [
    ["Method", facts.method],
    ["Structure", `${facts.structure}, ${groups} × ${bits} bits`],
    ["Data", facts.source ? `${facts.data} (${facts.source})` : facts.data],
    ["Image", `${width} × ${height} pixels`],
    ["Trained for", `${facts.steps.toLocaleString("en")} steps, β ${facts.beta}, seed ${facts.seed}`],
  ];
  if (result) {
    told.push(["Test NLL", `${nllText(result)} (standard error over ${result.images.toLocaleString("en")} images, ${result.importance_samples.toLocaleString("en")} importance samples each)`]);
    told.push(["NLL by the ends of log Z", intervalText(result.nll_low, result.nll_high, "−∞", "∞")]);
    told.push(["log Z", `${logZText(result)}; ${result.log_z_method}`]);
    told.push(["Independent pixels reach", `${number(result.baseline_nll)} nats`]);
  } else told.push(["Test NLL", "not evaluated: training has not ended"]);
  if (made) {
    const commits = [made.commit, result?.commit].filter((one, i, all) => one && all.indexOf(one) === i);
    told.push(["Made by", `softspin ${made.softspin}, commit ${commits.join(" and ") || "unknown"}, on ${made.device}`]);
  }
  if (facts.replicas > 1) told.push(["Replica", `${facts.replica} of ${facts.replicas}, from 0`]);
  return told;
}

function tell() {
  const { facts, units } = model;
  $("lead").textContent = `This page holds a trained model. It writes an image as ${units} bits, on or off, and paints `
    + "an image from any such bits. Draw something, flip bits, or let it dream. All of it is computed here; nothing is sent.";
  const headline = [facts.method, facts.structure, facts.data, `${units} bits`];
  if (facts.result) headline.push(`test NLL ${nllText(facts.result)}`, `log Z ${logZText(facts.result)}`);
  if (facts.trained_by) headline.push(`commit ${facts.trained_by.commit || "unknown"}`);
  $("headline").append(...headline.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  factsOf(model).forEach(([what, value]) => {
    $("facts").append(
      Object.assign(document.createElement("dt"), { textContent: what }),
      Object.assign(document.createElement("dd"), { textContent: value }),
    );
  });
}

// The largest difference between this page and PyTorch on the first test image, in logits, pixels, fields and energy.
function largestDifference() {
  const { check, images, rbm } = model;
  const { logits } = encode(model, images[0], (_, unit) => check.bits[unit]);
  const pairs = [
    [logits, check.logits],
    [decode(model, check.bits), check.pixels],
    [fields(rbm, check.bits), check.fields],
    [[energy(rbm, check.bits)], [check.energy]],
  ];
  return Math.max(...pairs.map(([here, there]) => here.reduce((most, value, i) => Math.max(most, Math.abs(value - there[i])), 0)));
}

function showCheck() {
  const difference = largestDifference();
  const verdict = difference < 1e-4 ? "agrees with PyTorch" : "does NOT agree with PyTorch";
  $("check").textContent = `Checked as this page opened: its arithmetic ${verdict} on the first test image; largest difference ${difference.toExponential(1)}.`;
}

tell();
startStrip();
startDrawing();
startBits();
startPrior();
startCouplings();
startDensity();
showCheck();
mark($("strip").firstChild);
setImage(model.images[0]);
window.addEventListener("resize", changed);

window.softspin = {
  model, state, families: Object.keys(FAMILIES), encode, decode, effects, fields, energy, sweep, strongestPairs, logDensities, mixtureDensity, uniforms, largestDifference,
};
