// The image: drawn by mouse, touch or keyboard, or selected from the test set.

let pen = Math.max(1, Math.round(Math.min(model.height, model.width) / 6) / 2);
let last = null; // the last position of the pen, in pixels of the image
let cursor = null; // of the keyboard

// Set pixels along a line from one point to another; the pixels under both ends are always included.
function stroke(image, from, to, thickness, value) {
  const { height, width } = model;
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const long = dx * dx + dy * dy;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const [px, py] = [x + 0.5 - from.x, y + 0.5 - from.y];
      const share = long ? Math.max(0, Math.min(1, (px * dx + py * dy) / long)) : 0;
      const near = Math.hypot(px - share * dx, py - share * dy) <= thickness / 2;
      const under = [from, to].some((end) => Math.floor(end.x) === x && Math.floor(end.y) === y);
      if (near || under) image[y * width + x] = value;
    }
  }
}

function pointOf(event) {
  const box = $("canvas").getBoundingClientRect();
  return {
    x: ((event.clientX - box.left) / box.width) * model.width,
    y: ((event.clientY - box.top) / box.height) * model.height,
  };
}

function ink(from, to) {
  const image = state.image.slice();
  stroke(image, from, to, pen, $("eraser").getAttribute("aria-pressed") === "true" ? 0 : 1);
  mark(null);
  setImage(image);
  tell("Your image has changed: it is encoded to its most likely bits, and they are decoded.");
}

// Mark the test image that is shown, if any.
function mark(button) {
  Array.from($("strip").children).forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
}

// Show a test image; `encodeIt` computes its bits.
function pick(index, encodeIt) {
  const button = $("strip").children[index];
  mark(button);
  state.image = Uint8Array.from(images[index]);
  if (model.given.length) useCondition(data.image_conditions[index]);
  encodeIt();
  const { left, right } = $("strip").getBoundingClientRect();
  const box = button.getBoundingClientRect();
  if (box.left < left || box.right > right) $("strip").scrollLeft += box.left - left; // a single row on narrow screens
}

function shownImage() {
  return Array.from($("strip").children).findIndex((one) => one.getAttribute("aria-pressed") === "true");
}

function startDrawing() {
  const canvas = $("canvas");
  shapePicture(canvas);
  canvas.setAttribute("aria-label", `Your image, ${model.width} by ${model.height} pixels`);
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    cursor = null;
    last = pointOf(event);
    ink(last, last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    const point = pointOf(event);
    ink(last, point);
    last = point;
  });
  ["pointerup", "pointercancel"].forEach((end) => canvas.addEventListener(end, () => { last = null; }));
  canvas.addEventListener("keydown", keyOnCanvas);
  canvas.addEventListener("blur", () => { cursor = null; changed(); });

  const slider = $("pen");
  const thickest = Math.max(2, Math.round(Math.min(model.height, model.width) / 4));
  Object.assign(slider, { min: 1, max: thickest, step: 0.5, value: pen });
  slider.addEventListener("input", () => { pen = Number(slider.value); showPen(); });
  const showPen = () => { $("pen-value").textContent = `${pen} px`; };
  showPen();
  $("clear").addEventListener("click", () => {
    mark(null);
    setImage(new Uint8Array(model.pixels));
    tell("Cleared: the empty image is encoded. Draw on it.");
  });
  $("eraser").addEventListener("click", () => {
    const on = $("eraser").getAttribute("aria-pressed") !== "true";
    $("eraser").setAttribute("aria-pressed", String(on));
    tell(on ? "The pen now erases." : "The pen now draws.");
  });
}

function keyOnCanvas(event) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], " ": [0, 0] };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  cursor = cursor || { x: Math.floor(model.width / 2), y: Math.floor(model.height / 2) };
  cursor.x = Math.max(0, Math.min(model.width - 1, cursor.x + move[0]));
  cursor.y = Math.max(0, Math.min(model.height - 1, cursor.y + move[1]));
  if (event.key === " ") {
    const point = { x: cursor.x + 0.5, y: cursor.y + 0.5 };
    ink(point, point);
  }
  changed();
}

function startStrip() {
  const strip = $("strip");
  images.forEach((image, index) => {
    const button = thumbnail(image, `Test image ${index + 1}`, () => {
      setRunning(false);
      pick(index, () => encodeImage(mostLikely));
      tell(`Test image ${index + 1} is encoded to its most likely bits, and they are decoded.`);
    });
    button.tabIndex = index ? -1 : 0;
    strip.append(button);
  });
  roving(strip);
}

function showImage() {
  const canvas = $("canvas");
  paint(canvas, state.image, model.height, model.width);
  if (cursor && document.activeElement === canvas) {
    const context = canvas.getContext("2d");
    context.fillStyle = css("orange", 0.8);
    context.fillRect(cursor.x, cursor.y, 1, 1);
  }
}

views.push(showImage);
