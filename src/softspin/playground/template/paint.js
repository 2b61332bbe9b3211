// Numbers as colours on a canvas, in the light or dark colours of the page.

let palette = null;

function colours() {
  if (!palette) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => {
      const hex = style.getPropertyValue(name).trim();
      return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    };
    palette = Object.fromEntries(["paper", "ink", "blue", "orange", "soft", "line"].map((n) => [n, read(`--${n}`)]));
  }
  return palette;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  palette = null;
  document.querySelectorAll(".thumb").forEach((button) => button.repaint());
  changed();
});

function css(name, alpha = 1) {
  return `rgb(${colours()[name].join(" ")} / ${alpha})`;
}

function element(name, text = "", className = "") {
  return Object.assign(document.createElement(name), { textContent: text, className });
}

// Values from 0 (paper) to 1 (ink); signed ones from -1 (orange) over 0 (paper) to 1 (blue).
function paint(canvas, values, height, width, signed = false) {
  const { paper, ink, blue, orange } = colours();
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let i = 0; i < values.length; i++) {
    const value = Math.max(-1, Math.min(1, values[i]));
    const end = signed ? (value < 0 ? orange : blue) : ink;
    const share = Math.abs(value);
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = paper[c] + share * (end[c] - paper[c]);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

// A picture fills its container in width or height; very flat or tall ones are stretched to be visible.
function shapePicture(canvas) {
  const ratio = Math.max(1 / 3, Math.min(12, model.width / model.height));
  canvas.style.aspectRatio = ratio;
  canvas.style.width = `${100 * Math.min(1, ratio)}%`;
}

// A canvas in the resolution of the screen and the size of its container, for lines and text. Units are CSS pixels.
function plotting(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = "12px system-ui, sans-serif";
  return { context, width };
}

// A button with a picture.
function thumbnail(values, label, onPick) {
  const button = document.createElement("button");
  const canvas = document.createElement("canvas");
  button.type = "button";
  button.className = "thumb";
  button.setAttribute("aria-label", label);
  shapePicture(canvas);
  button.repaint = () => paint(canvas, values, model.height, model.width);
  button.repaint();
  button.append(canvas);
  button.addEventListener("click", onPick);
  return button;
}

// One tab stop for all children; arrow keys move between them, also up and down if they wrap.
function roving(box, onMove = () => {}) {
  const items = () => Array.from(box.children);
  box.addEventListener("focusin", (event) => {
    items().forEach((item) => { item.tabIndex = item === event.target ? 0 : -1; });
    onMove(event.target);
  });
  box.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const across = all.findIndex((item) => item.offsetTop !== all[0].offsetTop);
    const columns = across < 0 ? all.length : across;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!by) return;
    event.preventDefault();
    all[at + by]?.focus();
  });
}
