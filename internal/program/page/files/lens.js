// A record's way through a lens: what becomes of it in another version, and on the way back.

import { call } from './api.js';
import { announce, card, el } from './dom.js';
import { connected } from './follow.js';
import { short } from './words.js';

export async function lens(main, name, user, signal, fail) {
  document.title = 'Try a record - ' + short(name) + ' - dbcontroller';
  let d;
  try {
    d = await call('GetDeployment', { name });
  } catch (e) {
    if (!signal.aborted) fail(e);
    return;
  }
  if (signal.aborted) return;
  connected('', '');
  const result = el('div', { id: 'tried', class: 'grid', 'aria-live': 'polite' });
  main.replaceChildren(
    el('p', {}, el('a', { href: '#/d/' + encodeURIComponent(name) }, '← ' + short(name))),
    el('h1', {}, 'Try a record'),
    el('p', {}, 'Paste a record and see what it becomes in another version, and whether it returns as it was. The controller does this in memory, and changes nothing.'),
    form(d, user, result, signal), result);
}

function choice(id, label, options, onchange) {
  const select = el('select', { id, onchange }, options.map((o) => el('option', { value: o }, o)));
  return { select, node: el('div', {}, el('label', { for: id }, label), select) };
}

// choose replaces the options of a select.
const choose = (select, options) => select.replaceChildren(...options.map((o) => el('option', { value: o }, o)));

function form(d, user, result, signal) {
  const versions = [...new Set([d.currentVersion, ...(d.namespaces || []).map((n) => n.version), ...(d.availableUpgrades || []).map((a) => a.targetVersion)])];
  const kindsOf = (version) => (d.namespaces || []).filter((n) => n.version === version).flatMap((n) => (n.kinds || []).map((k) => k.kind));
  const chosen = () => {
    choose(to.select, versions.filter((v) => v !== from.select.value));
    choose(kind.select, kindsOf(from.select.value));
  };
  const from = choice('lens-from', 'Its version', versions, chosen);
  const to = choice('lens-to', 'Moved to', []);
  const kind = choice('lens-kind', 'Kind', []);
  chosen();
  const record = el('textarea', { id: 'lens-record', rows: '12', required: true, spellcheck: 'false', placeholder: '{"_id": "c-1", "mail": "a@example.com"}' });
  const over = el('input', { type: 'checkbox', id: 'lens-over' });
  const problem = el('p', { class: 'error', role: 'alert' });
  let asked = 0;
  const onsubmit = async (event) => {
    event.preventDefault();
    const mine = ++asked;
    problem.textContent = '';
    const request = { name: d.name, fromVersion: from.select.value, toVersion: to.select.value, kind: kind.select.value, record: record.value, over: over.checked };
    try {
      const r = await call('TryTransform', request);
      if (mine === asked && !signal.aborted) show(result, r, request);
    } catch (e) {
      if (mine !== asked || signal.aborted) return;
      problem.textContent = e.message;
      result.replaceChildren();
    }
  };
  // sample fills in a record of the database. The controller refuses unless its configuration allows it.
  const sample = async () => {
    const mine = ++asked;
    problem.textContent = '';
    try {
      const r = await call('SampleRecord', { name: d.name, version: from.select.value, kind: kind.select.value });
      if (mine !== asked || signal.aborted) return;
      if (r.record) record.value = r.record;
      else problem.textContent = `${r.kind} of ${from.select.value} has no record.`;
    } catch (e) {
      if (mine === asked && !signal.aborted) problem.textContent = e.message;
    }
  };
  return el('form', { class: 'card', onsubmit },
    el('div', { class: 'choices' }, from.node, to.node, kind.node),
    el('label', { for: 'lens-record' }, 'Record', el('small', {}, 'as stored, with its _id, in Extended JSON; at most 256 KiB')), record,
    el('label', { for: 'lens-over' }, over, 'On the way back the old record still exists, as after a switch'),
    problem, el('button', { type: 'submit', class: 'main', id: 'lens-try' }, 'Try it'),
    user.operator && el('button', { type: 'button', id: 'lens-sample', onclick: sample }, 'Take one from the database'));
}

// lines are the lines of records, each record under its kind.
const lines = (records) => (records || []).flatMap((r) => [r.kind, ...r.record.split('\n')]);

const bare = (line) => line.trim().replace(/,$/, '');

// marked shows lines; those that the other side lacks get a sign and a colour.
function marked(mine, others, sign) {
  const left = new Map();
  for (const line of others) left.set(bare(line), (left.get(bare(line)) || 0) + 1);
  return el('pre', { tabindex: '0' }, mine.map((line) => {
    const n = left.get(bare(line)) || 0;
    left.set(bare(line), n - 1);
    return n > 0 ? el('span', {}, '  ' + line) : el(sign === '+' ? 'ins' : 'del', {}, sign + ' ' + line);
  }));
}

function show(result, r, request) {
  const was = lines(r.was);
  const there = lines(r.there);
  const refused = (way) => r.failed === way && el('p', { class: 'error' }, r.reason);
  const differences = r.differences || [];
  const verdict = r.failed ? 'refused' : r.exact ? 'the same' : differences.length > 0 ? 'different' : 'the same, in another order';
  result.replaceChildren(
    el('section', { class: 'card' }, card('In ' + request.fromVersion, marked(was, there, '-'))),
    el('section', { class: 'card' }, card('In ' + request.toVersion, refused('there') || (there.length > 0 ? marked(there, was, '+') : el('p', {}, 'It has no such record.')))),
    r.failed !== 'there' && el('section', { class: 'card', id: 'tried-back' }, card(`Back in ${request.fromVersion}`,
      el('p', {}, el('span', { class: 'badge ' + (r.failed ? 'bad' : differences.length > 0 ? 'warn' : 'good') }, verdict)),
      refused('back'),
      differences.length > 0 && el('ul', {}, differences.map((f) => el('li', {}, el('code', {}, `${f.kind} ${f.path}`), ': ', el('code', {}, f.was || 'absent'), ' becomes ', el('code', {}, f.is || 'absent')))),
      !r.failed && differences.length > 0 && marked(lines(r.back), was, '+'))) || '');
  announce(`In ${request.toVersion}: ` + (r.failed ? `${r.failed}: ${r.reason}` : `back in ${request.fromVersion}: ${verdict}`));
}
