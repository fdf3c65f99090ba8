// Follows data of controllers. When a controller is gone, it says so and goes to the next one.

import { CallError, controller, next, others, stream } from './api.js';

const quiet = 30000; // milliseconds without a message, after which the stream is opened again
const first = 500; // milliseconds before the first retry
const longest = 5000;

const bar = document.getElementById('connection');
const live = document.getElementById('live');

// connected shows whether the data are current.
export function connected(state, text) {
  live.textContent = text;
  live.dataset.state = state;
  bar.hidden = state !== 'lost';
  bar.textContent = state === 'lost' ? text : '';
}

const sleep = (ms, signal) => new Promise((done) => {
  const t = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(t); done(); }, { once: true });
});

// passing reports whether an error may be over after a while, possibly at another controller.
const passing = (e) => e instanceof CallError && ['unreachable', 'unavailable', 'resource_exhausted', 'canceled', 'deadline_exceeded', 'aborted', 'internal', 'unknown'].includes(e.code);

// follow repeats run until signal ends. run shows data by itself, and calls alive with each message.
// fail gets the error that no repetition can heal.
export async function follow(run, signal, fail) {
  let wait = first;
  let heard = 0; // time of the data that are shown; 0: none are
  const alive = () => {
    wait = first;
    heard = Date.now();
    connected('live', 'live');
  };
  while (!signal.aborted) {
    try {
      await run(alive);
    } catch (e) {
      if (signal.aborted) return;
      if (!passing(e)) {
        if (!(e instanceof CallError)) console.error(e);
        fail(e);
        return;
      }
      const gone = controller();
      if (others() > 0) next();
      // A controller that answers may be unable to reach another region.
      const why = e.code === 'unreachable' ? `The controller at ${gone} does not answer` : `The controller at ${gone} reports: ${e.message}`;
      const where = others() > 0 ? `going on with ${controller()}` : 'trying again';
      // The date as well: the page may be open for days.
      connected('lost', `${why}: ${where}.` + (heard ? ` What you see is from ${new Date(heard).toLocaleString()}.` : ''));
      await sleep(wait, signal);
      wait = Math.min(longest, wait * 2);
    }
  }
}

// watch follows one deployment by the API's stream.
export function watch(name, signal, show, fail) {
  return follow(async (alive) => {
    const one = new AbortController();
    const end = () => one.abort();
    signal.addEventListener('abort', end, { once: true });
    // Nothing may have changed for a while, or the controller may be gone. Another stream tells.
    let timer = setTimeout(end, quiet);
    let heard = false;
    try {
      for await (const d of stream('WatchDeployment', { name }, one.signal)) {
        clearTimeout(timer);
        timer = setTimeout(end, quiet);
        heard = true;
        alive();
        show(d);
      }
    } catch (e) {
      if (!one.signal.aborted) throw e;
      // A stream begins with a message. Without one the controller hangs.
      if (!heard && !signal.aborted) throw new CallError('unreachable', 'the controller sends nothing');
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
    }
  }, signal, fail);
}

// poll calls get every so many milliseconds, while the page can be seen.
export function poll(get, every, signal, show, fail) {
  return follow(async (alive) => {
    for (;;) {
      if (!document.hidden) {
        const got = await get();
        if (signal.aborted) return;
        alive();
        show(got);
      }
      await sleep(every, signal);
      if (signal.aborted) return;
    }
  }, signal, fail);
}
