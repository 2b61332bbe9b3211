// The Gibbs chain of the prior: where it starts, single steps or continuous sampling, and its history.

const FRAMES = 12;
const chain = { running: false, timer: 0, shown: 0, energies: [], pace: 1 };

function startPrior() {
  shapePicture($("dream"));
  $("run").addEventListener("click", () => {
    setRunning(!chain.running);
    tell(chain.running ? "The chain runs from the current bits until you pause it." : "The chain is paused.");
  });
  $("step").addEventListener("click", () => {
    setRunning(false);
    advance(true);
    tell(`One step: ${chain.pace === 1 ? "a Gibbs sweep" : `${chain.pace} Gibbs sweeps`} from the previous bits.`);
  });
  $("from-image").addEventListener("click", () => startChain(encodeAround, "the most likely bits of your image"));
  $("from-random").addEventListener("click", () => startChain(scatter, "random bits, each 1 with probability 1/2"));
  $("from-other").addEventListener("click", () => {
    const index = otherImage();
    startChain(() => pick(index, encodeAround), `the most likely bits of test image ${index + 1}`);
  });
  $("from-other").disabled = images.length < 2;
  $("release").addEventListener("click", () => hold(Array.from(state.held.keys()).filter((unit) => state.held[unit]), false));
  $("temperature").addEventListener("input", (event) => { state.temperature = 2 ** event.target.value; showWords(); });
  $("pace").addEventListener("input", (event) => { chain.pace = Math.round(10 ** event.target.value); showWords(); });
  roving($("film"));
}

// Any test image but the one that is shown.
function otherImage() {
  const shown = shownImage();
  const others = Array.from(images.keys()).filter((index) => index !== shown);
  return others[Math.floor(random() * others.length)];
}

// A new chain: its bits by `setBits`, its history empty, and running.
function startChain(setBits, words) {
  forget();
  setBits();
  keepFrame();
  setRunning(true);
  const held = state.held.includes(1) ? " Clamped bits keep their values." : "";
  tell(`A chain runs from ${words}.${held}`);
}

function forget() {
  setRunning(false);
  Object.assign(chain, { energies: [], shown: 0 });
  $("film").replaceChildren();
}

function setRunning(on) {
  chain.running = on;
  clearTimeout(chain.timer);
  $("run").textContent = on ? "Pause" : "Run";
  if (on) tick();
  else changed();
}

// Ten frames per second, or one with reduced motion; every tenth is kept.
function tick() {
  advance(calm.matches || chain.shown % 10 === 0);
  chain.timer = setTimeout(tick, calm.matches ? 1000 : 100);
}

function advance(keep) {
  dream(chain.pace);
  chain.shown += 1;
  chain.energies = [...chain.energies, energy(model.prior, state.bits)].slice(-200);
  if (keep) keepFrame();
}

function keepFrame() {
  const bits = state.bits.slice();
  const { chance, chanceOf, steps } = state;
  const film = $("film");
  const button = thumbnail(decode(model, bits), `Sample at step ${steps}`, () => {
    setRunning(false);
    Object.assign(state, { bits: bits.slice(), chance, chanceOf, steps });
    tell(`The bits of step ${steps} are back. Run continues from them.`);
    changed();
  });
  button.title = `step ${steps}`;
  film.prepend(button);
  while (film.children.length > FRAMES) film.lastChild.remove();
  if (film.contains(document.activeElement)) return;
  Array.from(film.children).forEach((one, i) => { one.tabIndex = i ? -1 : 0; });
}

function showWords() {
  const held = state.held.reduce((sum, one) => sum + one, 0);
  const { temperature } = state;
  const kind = temperature === 1 ? "as trained" : temperature < 1 ? "more likely states" : "more random states";
  $("temperature-value").textContent = `${temperature.toFixed(2)}, ${kind}`;
  $("pace-value").textContent = chain.pace;
  const which = held ? `${held} of ${model.units} bits clamped` : "No bit is clamped";
  const now = fixed(energy(model.prior, state.bits), 1);
  $("prior-words").textContent = `${which}. Step ${state.steps}, energy ${now} (lower is more likely).`;
  $("release").disabled = held === 0;
  $("film-words").textContent = $("film").children.length ? "The latest first. Click one to restore its bits."
    : "Samples and energies of the chain appear here.";
}

function showTrace() {
  const { energies } = chain;
  $("trace").hidden = energies.length < 2;
  if (energies.length < 2 || !$("trace").offsetParent) return; // too short, or on another tab
  const { context, width } = plotting($("trace"), 90);
  context.fillStyle = css("soft");
  context.fillText("energy", 0, 11);
  const [low, high] = [Math.min(...energies), Math.max(...energies)];
  context.textAlign = "right";
  const digits = high - low < 1 ? 2 : high - low < 10 ? 1 : 0;
  context.fillText(fixed(high, digits), width, 11);
  context.fillText(fixed(low, digits), width, 88);
  context.strokeStyle = css("blue");
  context.lineWidth = 2;
  context.beginPath();
  energies.forEach((value, i) => {
    const x = (i / (energies.length - 1)) * (width - 44);
    context.lineTo(x, 84 - ((value - low) / (high - low || 1)) * 64);
  });
  context.stroke();
}

views.push(() => paint($("dream"), state.pixels, model.height, model.width), showWords, showTrace);
