// The dialog of a verb: what it needs, what it would do, and then the change itself. Like the command
// line it makes a dry run first, sends the change once, and asks for the outcome of a lost answer.

import { CallError, call, next, others, stream } from './api.js';
import { announce, count, el, seconds } from './dom.js';

// settle is the time in which a preview cannot be confirmed. Without it the second click of a double
// click, or a key that is held down, would confirm what nobody has read.
const settle = 600; // milliseconds

const idle = (effects) => effects.length > 0 && effects.every((e) => e.startsWith('nothing: '));

// open shows a verb's dialog. A verb has:
//   title, help, danger   texts; danger marks what cannot be taken back
//   fields                what the user gives, see input
//   calls(values)         [method, request] in order; a dry run precedes them
//   effects(answer)       of a dry run's answer; default: its effects
//   prepare(values, say, signal) runs before the dry run. It may return a text to show, and
//                         what to type as confirmation; default: what the dry run's answer says
//   after                 runs when the change is made
export function open(verb) {
  const form = el('form', { method: 'dialog' });
  const dialog = el('dialog', { 'aria-labelledby': 'dialog-title' }, form);
  const close = () => dialog.close();
  dialog.addEventListener('close', () => {
    dialog.ending?.abort();
    dialog.remove();
  });
  // A key that is held down sends nothing again.
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.repeat) event.preventDefault();
  });
  document.body.append(dialog);
  ask(verb, dialog, form, close);
  dialog.showModal();
}

// shape is the content of all steps.
function shape(form, verb, content, ...buttons) {
  form.replaceChildren(el('h2', { id: 'dialog-title' }, verb.title), ...[content].flat(Infinity).filter(Boolean), el('div', { class: 'row' }, buttons));
}

const button = (text, onclick, kind) => el('button', { type: kind === 'submit' ? 'submit' : 'button', onclick, class: kind === 'submit' ? 'main' : null }, text);

// input makes the element of a field: {name, label, help, type, value, options, min, required}.
function input(f) {
  const id = 'field-' + f.name;
  const about = { id, name: f.name, required: f.required };
  if (f.type === 'checkbox') return el('label', { for: id }, el('input', { ...about, type: 'checkbox', checked: f.value }), f.label, f.help && el('small', {}, f.help));
  const control = f.options ? el('select', about, f.options.map((o) => el('option', { value: o, selected: o === f.value }, o)))
    : f.type === 'textarea' ? el('textarea', { ...about, rows: '8', spellcheck: 'false' }, f.value || '')
    : el('input', { ...about, type: f.type || 'text', min: f.min, max: f.max, step: f.step, value: f.value, autocomplete: 'off', placeholder: f.placeholder });
  return [el('label', { for: id }, f.label, f.help && el('small', {}, f.help)), control];
}

// ask is the first step: the fields, unless there are none.
function ask(verb, dialog, form, close, problem) {
  const fields = verb.fields || [];
  const read = () => Object.fromEntries(fields.map((f) => {
    const at = form.elements[f.name];
    return [f.name, f.type === 'checkbox' ? at.checked : at.value.trim()];
  }));
  shape(form, verb, [el('p', {}, verb.help), fields.map(input), problem && el('p', { class: 'error', role: 'alert' }, problem)],
    button('Cancel', close), button(verb.shows ? 'Start' : 'Preview', null, 'submit'));
  form.onsubmit = (event) => {
    event.preventDefault();
    preview(verb, dialog, form, close, read());
  };
  // Without a question the preview comes at once.
  if (fields.length === 0 && !problem && !verb.shows) preview(verb, dialog, form, close, {});
}

// busy shows that the dialog waits for a controller.
function busy(verb, form, close, text) {
  const line = el('p', { role: 'status' }, text);
  form.onsubmit = (event) => event.preventDefault();
  shape(form, verb, line, button('Cancel', close));
  return (now) => { line.textContent = now; };
}

async function preview(verb, dialog, form, close, values) {
  const say = busy(verb, form, close, 'Asking the controller …');
  try {
    if (verb.shows) {
      dialog.ending = new AbortController();
      const content = await verb.shows(values, say, dialog.ending.signal);
      shape(form, verb, content, button('Close', close));
      return;
    }
    dialog.ending = new AbortController();
    const prepared = await verb.prepare?.(values, say, dialog.ending.signal);
    const shown = [];
    for (const [method, request] of verb.calls(values)) shown.push(await call(method, { ...request, dryRun: true, requestedBy: 'page' }));
    if (!dialog.open) return;
    confirm(verb, dialog, form, close, values, shown, prepared);
  } catch (e) {
    if (!dialog.open) return;
    if (!(e instanceof CallError)) throw e;
    if ((verb.fields || []).length > 0) {
      // The user's values stay.
      const again = { ...verb, fields: verb.fields.map((f) => ({ ...f, value: values[f.name] })) };
      ask(again, dialog, form, close, e.message);
    } else {
      shape(form, verb, el('p', { class: 'error', role: 'alert' }, e.message), button('Close', close));
    }
  }
}

// confirm is the second step: what would happen, and what the user has to type for it.
function confirm(verb, dialog, form, close, values, shown, prepared) {
  const effects = shown.flatMap((d) => verb.effects ? verb.effects(d) : d.effects || []);
  const nothing = idle(effects);
  const phrase = !nothing && (prepared?.confirm || shown.map((d) => d.confirm).find(Boolean));
  const lacks = phrase && shown.map((d) => d.confirmLacks).find(Boolean);
  const box = phrase && el('input', { id: 'confirm', autocomplete: 'off', spellcheck: 'false', required: true });
  const act = el('button', { type: 'submit', class: verb.danger ? 'main danger' : 'main', id: 'act' }, verb.act || verb.title.replace(' …', ''));
  act.disabled = true;
  if (phrase) box.addEventListener('input', () => { act.disabled = box.value !== phrase; });
  else setTimeout(() => {
    act.disabled = false;
    if (form.contains(document.activeElement) || document.activeElement === document.body || document.activeElement === dialog) act.focus();
  }, settle);
  shape(form, verb, [
    prepared?.text && el('p', { class: 'error' }, prepared.text),
    el('div', { class: 'effects' }, nothing ? 'Nothing would change: ' : 'This will:', el('ul', {}, effects.map((e) => el('li', {}, e.replace(/^nothing: /, ''))))),
    lacks && el('p', { class: 'error' }, lacks),
    phrase && [el('label', { for: 'confirm' }, 'To confirm, type', el('code', { class: 'phrase' }, ' ' + phrase)), box],
  ], button('Cancel', close), !nothing && act);
  if (box) box.focus();
  form.onsubmit = (event) => {
    event.preventDefault();
    if (!act.disabled) make(verb, dialog, form, close, { ...values, confirm: phrase || undefined }, shown);
  };
}

async function make(verb, dialog, form, close, values, shown) {
  form.onsubmit = (event) => event.preventDefault();
  shape(form, verb, el('p', { role: 'status' }, 'Changing … To close this does not stop it.'), button('Close', close));
  const done = [];
  try {
    const calls = verb.calls(values, shown);
    for (const [method, request] of calls) {
      try {
        done.push(...(await call(method, { ...request, requestedBy: 'page' })).effects || []);
      } catch (e) {
        if (!(e instanceof CallError) || !e.lost) throw e;
        await resolve(verb, method, request, e);
      }
    }
    announce('Done: ' + (done.join('; ') || verb.title));
    verb.after?.();
    close();
  } catch (e) {
    if (!(e instanceof CallError)) throw e;
    shape(form, verb, el('p', { class: 'error', role: 'alert' }, e.message), button('Close', close));
    // The user may have closed the dialog, and must know this all the same.
    if (!dialog.open) {
      document.body.append(dialog);
      dialog.showModal();
    }
  }
}

// resolve finds out whether a change with a lost answer was made: a dry run shows whether anything is
// left to do. Any controller may answer it. It throws unless the change was made.
async function resolve(verb, method, request, lost) {
  const unknown = (why) => new CallError('unknown', `The answer was lost (${lost.message}), and the outcome is unknown: ${why}. The history shows it; it is safe to repeat the verb.`);
  for (let more = others(); ; more--) {
    try {
      const now = await call(method, { ...request, dryRun: true, requestedBy: 'page' });
      if (idle(verb.effects ? verb.effects(now) : now.effects || [])) return;
    } catch (e) {
      if (!(e instanceof CallError)) throw e;
      if (!e.lost || more <= 0) throw unknown(`no controller reports it (${e.message})`);
      next();
      continue;
    }
    // The request may still be on its way.
    throw unknown('it is not made yet');
  }
}

// report follows a long call until its report arrives.
export async function report(method, request, say, signal) {
  for await (const m of stream(method, request, signal)) {
    if (m.report) return m.report;
    const w = m.work || {};
    const done = Number(w.total) > 0 ? `, ${count(w.done)} of about ${count(w.total)}` : m.compared ? `, ${count(m.compared)} compared` : '';
    say((w.doing || 'working') + done + (w.etaSeconds !== undefined ? `, about ${seconds(w.etaSeconds)} left` : '') + ' …');
  }
  throw new CallError('unreachable', 'the controller ended the call without a report: repeat it');
}
