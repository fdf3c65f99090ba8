// The page: who the user is, and which view the address names.

import { CallError, hasToken, know, login, logout, session } from './api.js';
import { announce, el } from './dom.js';
import { connected } from './follow.js';
import { overview } from './overview.js';
import { deployment } from './deployment.js';
import { lens } from './lens.js';
import { rollout } from './rollouts.js';

const main = document.getElementById('main');
const who = document.getElementById('who');
let user; // the answer of session
let leave = new AbortController(); // ends the present view

// start finds out who the user is, then shows the view.
async function start() {
  try {
    user = await session();
  } catch (e) {
    stop();
    who.replaceChildren();
    if (e instanceof CallError && ['unauthenticated', 'permission_denied'].includes(e.code)) {
      ask(hasToken() || e.code === 'permission_denied' ? e.message : '');
      return;
    }
    connected('lost', e.message + ': trying again.');
    setTimeout(start, 2000);
    return;
  }
  know(user.others || []);
  who.replaceChildren(el('span', { title: `proof: ${user.proof}` }, user.identity), ' ',
    el('span', { class: 'badge' }, user.operator ? 'operator' : 'viewer'),
    ...(hasToken() ? [' ', el('button', { type: 'button', class: 'link', onclick: () => { logout(); start(); } }, 'Log out')] : []));
  show();
}

function stop() {
  leave.abort();
  leave = new AbortController();
}

// ask shows the login.
function ask(problem) {
  connected('', '');
  document.title = 'Log in - dbcontroller';
  const token = el('input', { type: 'password', id: 'token', autocomplete: 'off', required: true, autofocus: true, 'aria-describedby': 'problem' });
  main.replaceChildren(el('form', {
    class: 'login card', onsubmit: (event) => {
      event.preventDefault();
      // The browser would refuse to send it, and look like a controller that does not answer.
      if (!/^[\x21-\x7e]+$/.test(token.value.trim())) {
        document.getElementById('problem').textContent = 'A token has no spaces, and no characters beyond ASCII: copy it again.';
        return;
      }
      login(token.value);
      start();
    },
  },
  el('h1', {}, 'Log in'),
  el('label', { for: 'token' }, 'Token'), token,
  el('p', { id: 'problem', class: 'error', role: 'alert' }, problem),
  el('p', { class: 'quiet' }, 'The token stays in this tab until you close it. With a client certificate, or without identities on this machine, you need none: reload the page.'),
  el('button', { type: 'submit', class: 'main' }, 'Log in')));
  token.focus();
}

// failed shows why a view ended.
function failed(e) {
  if (e instanceof CallError && e.code === 'unauthenticated') {
    ask(e.message);
    return;
  }
  connected('', '');
  main.replaceChildren(el('div', { class: 'card' }, el('h1', {}, 'This view ended'), el('p', { class: 'error', role: 'alert' }, e.message),
    el('p', {}, el('a', { href: '#/' }, 'All deployments'), ' ', el('button', { type: 'button', onclick: show }, 'Try again'))));
}

// decoded returns the name in an address. Somebody may have cut the address in the middle of an escape.
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    throw new Error('the address of this view names nothing: ' + name);
  }
}

// show shows the view that the address names: #/, #/d/NAME, #/lens/NAME or #/r/ROLLOUT.
function show() {
  if (!user) return;
  stop();
  const [, kind, name] = location.hash.split('/');
  connected('', 'connecting …');
  try {
    view(kind, name);
  } catch (e) {
    failed(e);
  }
}

function view(kind, name) {
  if (kind === 'd' && name) {
    deployment(main, decoded(name), user, leave.signal, failed);
  } else if (kind === 'lens' && name) {
    lens(main, decoded(name), user, leave.signal, failed);
  } else if (kind === 'r' && name) {
    rollout(main, decoded(name), user, leave.signal, failed);
  } else {
    overview(main, user, leave.signal, failed);
  }
}

addEventListener('hashchange', () => {
  show();
  main.focus();
  announce(document.title);
});
start();
