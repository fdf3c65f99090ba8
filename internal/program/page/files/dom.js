// Elements, and the forms of numbers and times. Everything that comes from a controller becomes a
// text node or an attribute, never HTML. The server's policy enforces that (trusted types).

const svgSpace = 'http://www.w3.org/2000/svg';

// el makes an element. Attributes that begin with "on" take a function. Children are nodes, texts,
// or lists of both; false, null and undefined are left out.
export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// svg makes an element of a drawing.
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(svgSpace, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on') && typeof value === 'function') node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, '');
    else if (value !== false && value !== undefined && value !== null) node.setAttribute(key, String(value));
  }
  node.append(...children.flat(Infinity).filter((c) => c !== false && c !== null && c !== undefined));
  return node;
}

// Part is a part of a view that is drawn again only when its data have changed. So the focus, open
// details and scrolled tables stay as they are.
export class Part {
  constructor(name, attributes) {
    this.node = el(name, attributes);
    this.drawn = undefined;
  }

  // show draws the part if key differs from the one before. draw returns nodes; none hides the part.
  show(key, draw) {
    const text = JSON.stringify(key);
    if (text === this.drawn) return;
    this.drawn = text;
    const nodes = [draw()].flat(Infinity).filter(Boolean);
    this.node.hidden = nodes.length === 0;
    this.node.replaceChildren(...nodes);
  }
}

// card is a part of a page with a heading.
export function card(title, ...children) {
  return [el('h2', {}, title), ...children];
}

// table has a caption for screen readers and scrolls by itself on a narrow screen.
export function table(caption, heads, rows) {
  return el('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', {}, el('caption', { class: 'unseen' }, caption),
      el('thead', {}, el('tr', {}, heads.map((h) => el('th', { scope: 'col' }, h)))),
      el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((c) => el('td', {}, c)))))));
}

// facts is a list of labels and texts. Empty texts are left out.
export function facts(pairs) {
  const known = pairs.filter(([, text]) => text);
  return known.length > 0 && el('dl', {}, known.map(([label, text]) => [el('dt', {}, label), el('dd', {}, text)]));
}

// num reads a number of the API, where 64-bit integers are strings.
export const num = (value) => Number(value || 0);

// count groups the digits of a whole number.
export const count = (value) => Math.round(num(value)).toLocaleString('en');

// records is a number with its word.
export const records = (value) => count(value) + (num(value) === 1 ? ' record' : ' records');

// bytes is an amount of data.
export function bytes(value) {
  let n = num(value);
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return `${unit === 0 ? n : n.toFixed(1)} ${units[unit]}`;
}

// millis formats a duration, as the command line does.
export function millis(value) {
  const ms = num(value);
  return ms < 1000 ? `${ms} ms` : seconds(ms / 1000);
}

export function seconds(value) {
  const s = num(value);
  if (s < 60) return `${Math.round(s * 10) / 10} s`;
  const h = Math.floor(s / 3600);
  const m = Math.floor(s / 60) % 60;
  return (h > 0 ? `${h} h ` : '') + `${m} min ${Math.floor(s % 60)} s`;
}

// time formats a time in UTC, as the command line does. A text that is no time stays as it is.
export function time(text) {
  const at = new Date(text);
  return text && !Number.isNaN(at.getTime()) ? at.toISOString().slice(0, 19).replace('T', ' ') : text || '-';
}

// between is the time between two times, or "" if one is missing.
export function between(from, to) {
  const ms = new Date(to) - new Date(from);
  return from && to && !Number.isNaN(ms) ? millis(ms) : '';
}

// announce tells screen readers a change.
let said = '';
export function announce(text) {
  if (text === said) return;
  said = text;
  document.getElementById('announce').textContent = text;
}
