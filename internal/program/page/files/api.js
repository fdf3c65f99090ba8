// Calls of the Deployment API in Connect's JSON form. The token is in the storage of this tab alone,
// and goes only to the controller that the page came from and to those that it names.

const service = '/dbcontroller.v1.DeploymentService/';
const patience = 30000; // milliseconds for an answer, as on the command line

// CallError is a refused or failed call. lost means that a change may have been made all the same.
export class CallError extends Error {
  constructor(code, message, lost = false) {
    super(message);
    this.code = code;
    this.lost = lost;
  }
}

const store = {
  get token() { return sessionStorage.getItem('dbcontroller.token') || ''; },
  set token(value) {
    if (value) sessionStorage.setItem('dbcontroller.token', value);
    else sessionStorage.removeItem('dbcontroller.token');
  },
};

let addresses = [location.origin]; // of controllers that may answer
let current = 0; // of them, the one that calls go to

export const login = (token) => { store.token = token.trim(); };
export const logout = () => { store.token = ''; };
export const hasToken = () => store.token !== '';
export const controller = () => addresses[current];
export const others = () => addresses.length - 1;

// know sets the addresses of all controllers. The one that the page came from stays the first.
export function know(list) {
  const now = controller();
  addresses = [...new Set([location.origin, ...list])];
  current = Math.max(0, addresses.indexOf(now));
}

// next goes to the next controller.
export function next() {
  current = (current + 1) % addresses.length;
}

async function send(path, options) {
  const headers = { ...options.headers };
  if (store.token) headers.Authorization = 'Bearer ' + store.token;
  // A client certificate counts as a credential, also at another controller.
  return fetch(controller() + path, { ...options, headers, cache: 'no-store', credentials: 'include', redirect: 'error' });
}

// refusal reads the error of an answer.
async function refusal(res) {
  const text = await res.text();
  try {
    const { code, message } = JSON.parse(text);
    if (code) return new CallError(code, message || code);
  } catch { /* no JSON: the guard answers in plain text */ }
  const codes = { 401: 'unauthenticated', 403: 'permission_denied', 404: 'not_found', 429: 'resource_exhausted' };
  return new CallError(codes[res.status] || 'unavailable', text.trim().slice(0, 500) || `status ${res.status}`);
}

// reached makes a request and turns a broken connection into an error with a code.
async function reached(path, options) {
  try {
    return await send(path, options);
  } catch (e) {
    if (options.signal?.aborted && !(options.signal.reason instanceof DOMException && options.signal.reason.name === 'TimeoutError')) throw e;
    throw new CallError('unreachable', `the controller at ${controller()} does not answer`, true);
  }
}

// session returns who the user is for the controllers.
export async function session() {
  const res = await reached('/ui/session', { signal: AbortSignal.timeout(patience) });
  if (!res.ok) throw await refusal(res);
  return res.json();
}

// call makes a unary call.
export async function call(method, request) {
  const res = await reached(service + method, {
    method: 'POST', body: JSON.stringify(request), signal: AbortSignal.timeout(patience),
    headers: { 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1' },
  });
  if (!res.ok) {
    const e = await refusal(res);
    // With these codes the controller may have made the change before it failed.
    e.lost = ['unavailable', 'canceled', 'deadline_exceeded', 'unknown', 'internal'].includes(e.code);
    throw e;
  }
  try {
    return await res.json();
  } catch {
    throw new CallError('unreachable', `the answer of the controller at ${controller()} was cut off`, true);
  }
}

// stream makes a call whose answers arrive one by one.
export async function* stream(method, request, signal) {
  const body = new TextEncoder().encode(JSON.stringify(request));
  const framed = new Uint8Array(5 + body.length);
  new DataView(framed.buffer).setUint32(1, body.length);
  framed.set(body, 5);
  const res = await reached(service + method, {
    method: 'POST', body: framed, signal,
    headers: { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1' },
  });
  if (!res.ok) throw await refusal(res);
  const reader = res.body.getReader();
  let rest = new Uint8Array(0);
  try {
    for (;;) {
      while (rest.length >= 5) {
        const size = new DataView(rest.buffer, rest.byteOffset).getUint32(1);
        if (rest.length < 5 + size) break;
        let message;
        try {
          message = JSON.parse(new TextDecoder().decode(rest.subarray(5, 5 + size)));
        } catch {
          throw new CallError('unreachable', `the controller at ${controller()} sent a damaged answer`);
        }
        // The last message has the outcome.
        if (rest[0] & 2) {
          if (message.error) throw new CallError(message.error.code, message.error.message || message.error.code);
          return;
        }
        yield message;
        rest = rest.slice(5 + size);
      }
      let part;
      try {
        part = await reader.read();
      } catch (e) {
        if (signal.aborted) throw e;
        throw new CallError('unreachable', `the connection to the controller at ${controller()} broke`);
      }
      if (part.done) throw new CallError('unreachable', `the controller at ${controller()} ended the connection`);
      const joined = new Uint8Array(rest.length + part.value.length);
      joined.set(rest);
      joined.set(part.value, rest.length);
      rest = joined;
    }
  } finally {
    reader.cancel().catch(() => {}); // the stream may have ended already
  }
}
