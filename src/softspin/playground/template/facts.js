// What the page says about the model: facts, links, the self-test; the selector of the replica, and the tabs.

const COUNT_OF = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

// Texts that are the same for all replicas.
function startFacts() {
  const { units, groups, prior, height, width } = model;
  const planes = data.channels > 1 ? `, ${data.channels} channels one below the other,` : "";
  $("lead").textContent = `A trained discrete VAE that runs in this page: ${height} x ${width} pixels${planes} to ${units} bits, and back. `
    + "Draw something, flip bits, or sample from its prior.";
  $("strip-words").textContent = data.unseen ? "Test images, not used in training."
    : "Some of these images may have been used in training.";
  const blocks = COUNT_OF[prior.blocks.length] || prior.blocks.length;
  $("prior-kind").textContent = prior.sides
    ? "The prior is a restricted Boltzmann machine over the bits. Each step is a Gibbs sweep: it samples the right side given the left, then the left given the right."
    : `The prior is a Boltzmann machine on a graph with ${prior.weight.length} couplings. Each step is a Gibbs sweep: it samples ${blocks} sets `
      + "of uncoupled bits, one after another, each given all other bits.";
  $("couplings-kind").textContent = prior.sides ? "One square for each pair of a left and a right bit."
    : "One square for each pair of bits; each coupling is there twice, mirrored. Empty squares have no coupling.";
  $("heat").setAttribute("aria-label", `Heat map of the couplings, ${prior.sides ? "left bits down, right bits across" : "all bits down and across"}; arrow keys move`);
  if (groups > 1) $("groups-words").textContent = ` The encoder computes them in ${COUNT_OF[groups] || groups} groups, each from the image and the groups before it.`;
}

// Facts about the replica that is shown.
function showFacts() {
  const { headline, facts } = model;
  const left = data.trained > data.replicas.length
    ? [["Replicas", `${data.replicas.length} of ${data.trained} on this page, lowest validation NLL first`]] : [];
  $("headline").replaceChildren(...headline.map((text) => element("li", text)));
  $("facts").replaceChildren(...[...facts, ...left].flatMap(([what, value]) => [element("dt", what), element("dd", value)]));
  showCheck();
}

function startReplicas() {
  $("replica").append(...data.replicas.map(({ name }, index) => new Option(name, index)));
  $("replica-row").hidden = data.replicas.length < 2;
  $("replica").addEventListener("change", (event) => useReplica(Number(event.target.value)));
}

// Show another replica. Its bits mean other things, so nothing stays clamped and the chain is forgotten.
function useReplica(index) {
  forget();
  model = unpackReplica(data, images, index);
  state.held.fill(0);
  fillCouplings();
  showFacts();
  if (model.given.length) useCondition(state.condition);
  encodeImage(mostLikely);
  tell(`Replica ${model.number} encodes your image; all panels show this replica.`);
}

function startConditions() {
  const names = data.conditions || [];
  $("condition").append(...names.map((name, index) => new Option(name, index)));
  $("condition-row").hidden = names.length < 2;
  $("condition").addEventListener("change", (event) => {
    useCondition(Number(event.target.value));
    tell(`Encoder, decoder and prior use ${names[state.condition]} now. The bits stay; encode the image again, or sample.`);
    changed();
  });
  if (names.length) useCondition(data.image_conditions[0]);
}

// A condition changes the biases of the first layers and of the prior.
function useCondition(index) {
  const own = model.given[index];
  model.encoder.forEach((net, group) => { net[0].bias = own.encoder[group]; });
  model.decoder[0].bias = own.decoder;
  model.prior.bias = own.prior;
  state.condition = index;
  $("condition").value = index;
}

// On narrow screens one panel is shown at a time.
function startTabs() {
  const buttons = Array.from($("tabs").children);
  buttons.forEach((button) => button.addEventListener("click", () => {
    document.body.dataset.tab = button.dataset.of;
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    changed();
  }));
}

// The largest difference between this page and PyTorch on the first test image, in logits, pixels, fields and energy.
function largestDifference() {
  const { check, prior } = model;
  const { logits } = encode(model, images[0], (_, unit) => check.bits[unit]);
  const pairs = [
    [logits, check.logits],
    [decode(model, check.bits), check.pixels],
    [fields(prior, check.bits), check.fields],
    [[energy(prior, check.bits)], [check.energy]],
  ];
  const apart = (here, there) => here.reduce((most, value, i) => Math.max(most, Math.abs(value - there[i])), 0);
  return Math.max(...pairs.map(([here, there]) => apart(here, there)));
}

function showCheck() {
  const difference = largestDifference();
  const verdict = difference < 1e-4 ? "agrees with PyTorch" : "does NOT agree with PyTorch";
  $("check").textContent = `Self-test of this page: its arithmetic ${verdict} on the first test image; `
    + `largest difference ${difference.toExponential(1).replace("-", "\u2011")}.`; // a hyphen would break the line
}
