// Facts about the model, the self-test of the page, and the start.

function tell() {
  const { headline, facts, units } = model;
  $("lead").textContent = `A trained discrete VAE that runs in this page. It encodes an image as ${units} bits, and decodes bits `
    + "to an image. Draw something, flip bits, or sample from its prior.";
  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  $("strip-words").textContent = model.unseen ? "Test images, not used in training."
    : "Images of another data set than the model's; some of them may have been used in training.";
  $("headline").append(...headline.map((text) => element("li", text)));
  $("facts").append(...facts.flatMap(([what, value]) => [element("dt", what), element("dd", value)]));
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
  const apart = (here, there) => here.reduce((most, value, i) => Math.max(most, Math.abs(value - there[i])), 0);
  return Math.max(...pairs.map(([here, there]) => apart(here, there)));
}

function showCheck() {
  const difference = largestDifference();
  const verdict = difference < 1e-4 ? "agrees with PyTorch" : "does NOT agree with PyTorch";
  $("check").textContent = `Self-test of this page: its arithmetic ${verdict} on the first test image; `
    + `largest difference ${difference.toExponential(1)}.`;
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

// For tests, and for the console.
window.softspin = {
  model, state, families: Object.keys(FAMILIES), encode, decode, effects, fields, energy, sweep, uniforms, logDensities,
  mixtureDensity, largestDifference,
};
