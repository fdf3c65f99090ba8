// Parked records: which ones, why, and a waiver.

import { call } from './api.js';
import { Part, card, count, el, table } from './dom.js';
import { waive, waiveKind } from './verbs.js';

const most = 200; // records shown
const fresh = 10000; // milliseconds after which a list is asked for again

export class Parked {
  constructor(name, user, latest) {
    this.name = name;
    this.user = user;
    this.latest = latest;
    this.part = new Part('section', { class: 'card', id: 'parked' });
    this.part.node.hidden = true;
    this.node = this.part.node;
    this.seen = '';
    this.asked = 0;
  }

  // update asks for the list when its length has changed, and from time to time: one record may have
  // been corrected and another one parked.
  async update(d) {
    const key = [d.progress?.parked, d.rollbackSafe?.blocking, d.rollbackSafe?.waived, d.epoch, d.history?.length].join();
    if (key === this.seen && (this.node.hidden || Date.now() - this.asked < fresh)) return;
    this.seen = key;
    this.asked = Date.now();
    try {
      const list = await call('ListParked', { name: this.name });
      if (this.seen === key) this.show(list.parked || [], list.nextPageToken);
    } catch (e) {
      this.seen = '';
      this.part.show(e.message, () => card('Parked records', el('p', { class: 'error' }, e.message)));
    }
  }

  show(records, more) {
    this.part.show([records, more], () => {
      if (records.length === 0) return [];
      const kinds = [...new Set(records.filter((p) => !p.waived && !p.overflow).map((p) => p.kind))];
      return card('Parked records',
        el('p', {}, 'These records cannot be moved. Correct them in the source, and controllers retry them. Or waive them: the new version will then lack them.'),
        table('Parked records', ['Kind', 'Key', 'Shard', 'Reason', 'Waive'], records.slice(0, most).map((p) => [
          p.kind || '-', el('code', {}, p.key || '-'), String(p.shard), el('span', { class: 'reason' }, (p.error || '').split('\n')[0]),
          p.waived ? el('span', { class: 'badge' }, 'waived')
            : this.user.operator && !p.overflow && el('button', { type: 'button', 'aria-label': `Waive ${p.kind} ${p.key}`, onclick: () => waive(this.latest(), p) }, 'Waive …'),
        ])),
        (records.length > most || more) && el('p', { class: 'quiet' }, `The first ${count(Math.min(most, records.length))}; 'dbcontroller parked' lists all.`),
        this.user.operator && kinds.map((kind) => el('button', { type: 'button', onclick: () => waiveKind(this.latest(), kind) }, `Waive all of ${kind} …`)));
    });
  }
}
