package sealed

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

var _ record.Namespace = (*Namespace)(nil)

// Namespace is a namespace with encrypted managed kinds. Methods that it does not define are the
// backend's own.
type Namespace struct {
	record.Namespace
	sealer *Sealer
}

// Namespace wraps ns so that its managed kinds are encrypted.
func (s *Sealer) Namespace(ns record.Namespace) *Namespace { return &Namespace{ns, s} }

// Sealer returns the Sealer of the namespace.
func (n *Namespace) Sealer() *Sealer { return n.sealer }

// Stored returns the namespace without decryption, for the pass that re-encrypts records.
func (n *Namespace) Stored() record.Namespace { return n.Namespace }

// Scan returns the next page of a range, decrypted. Unreadable records have their Err set.
func (n *Namespace) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	page, err := n.Namespace.Scan(ctx, req)
	if err == nil && !req.KeysOnly {
		page.Records, err = n.sealer.openOrMark(ctx, only(req.Token), page.Records)
	}
	return page, err
}

// Read returns the selected records, decrypted. Unreadable records have their Err set.
func (n *Namespace) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := n.Namespace.Read(ctx, req)
	if err == nil && !req.KeysOnly {
		snap.Records, err = n.sealer.openOrMark(ctx, of(req.Tokens), snap.Records)
	}
	return snap, err
}

// Apply encrypts groups and writes them.
func (n *Namespace) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return n.groups(ctx, b, n.Namespace.Apply)
}

// Load encrypts groups and inserts them.
func (n *Namespace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return n.groups(ctx, b, n.Namespace.Load)
}

// groups encrypts and writes groups. A group that cannot be encrypted is Refused, and the others
// are still written.
func (n *Namespace) groups(ctx context.Context, b record.Batch, write func(context.Context, record.Batch) ([]record.Result, error)) ([]record.Result, error) {
	// Without managed kinds nothing is encrypted, and no State is needed.
	if !anyManaged(b.Tokens) {
		return write(ctx, b)
	}
	w, err := n.sealer.writing(ctx)
	if err != nil {
		return nil, err
	}
	results := make([]record.Result, len(b.Groups))
	groups, places := make([]record.GroupWrite, 0, len(b.Groups)), make([]int, 0, len(b.Groups))
	for i, g := range b.Groups {
		// The batch belongs to the caller, so encrypt a copy.
		g.Writes = slices.Clone(g.Writes)
		for j := range g.Writes {
			m := &g.Writes[j]
			if m.Doc, err = w.seal(b.Tokens[m.Kind], m.Key, m.Doc); err != nil {
				results[i] = record.Result{Outcome: record.Refused, Err: fmt.Errorf("%s %s: %w", m.Kind, m.Key, err)}
				break
			}
		}
		if err == nil {
			groups, places = append(groups, g), append(places, i)
		}
	}
	b.Groups = groups
	if len(groups) == 0 {
		return results, nil
	}
	done, err := write(ctx, b)
	if err != nil {
		n.sealer.late(ctx, err, 1) // refresh the State, so that the caller's next Apply uses the new key
		return nil, err
	}
	// Refused groups were left out of the batch, so map the answers back to their places.
	for i, r := range done {
		results[places[i]] = r
	}
	return results, nil
}

// Swap replaces each record whose decrypted document still equals Was. If a rotation re-encrypts
// the record during the swap, the result is Changed and the caller reads again.
func (n *Namespace) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	if tok.Fixed {
		return n.Namespace.Swap(ctx, tok, swaps)
	}
	w, err := n.sealer.writing(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	// The database holds envelopes and cannot compare them with Was. So compare the decrypted
	// documents here, and let the backend compare the envelope.
	var stored map[record.Key]record.Record
	if w.state.encrypts() {
		if stored, err = n.stored(ctx, tok, swaps); err != nil {
			return nil, err
		}
	}
	results := make([]record.Result, len(swaps))
	var raw []record.Swap
	var places []int
	for i, sw := range swaps {
		was := sw.Was
		if w.state.encrypts() {
			is := stored[sw.Key]
			was = is.Doc
			plain, err := n.sealer.Open(ctx, tok, is)
			if err != nil {
				return nil, err
			}
			// The record has changed since the caller's read.
			if was == nil || !bytes.Equal(plain.Doc, sw.Was) {
				results[i].Outcome = record.Changed
				continue
			}
		}
		doc, err := w.seal(tok, sw.Key, sw.Doc)
		if err == nil {
			err = record.CheckSwap(sw)
		}
		if err != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: err}
			continue
		}
		raw, places = append(raw, record.Swap{Key: sw.Key, Was: was, Doc: doc}), append(places, i)
	}
	if len(raw) == 0 {
		return results, nil
	}
	done, err := n.Namespace.Swap(ctx, tok, raw)
	if err != nil {
		n.sealer.late(ctx, err, 1) // refresh the State, so that a retry uses the new key
		return nil, err
	}
	for i, r := range done {
		results[places[i]] = r
	}
	return results, nil
}

// stored reads the present stored form of the records to swap.
func (n *Namespace) stored(ctx context.Context, tok record.Token, swaps []record.Swap) (map[record.Key]record.Record, error) {
	// An older read could return an outdated envelope, and the swap would fail.
	now, err := n.Position(ctx)
	if err != nil {
		return nil, err
	}
	req := record.ReadRequest{Tokens: record.Tokens{tok.Kind: tok}, NotBefore: now.At}
	for _, sw := range swaps {
		req.Select = append(req.Select, record.Selector{Kind: tok.Kind, Key: sw.Key})
	}
	snap, err := n.Namespace.Read(ctx, req)
	if err != nil {
		return nil, err
	}
	out := make(map[record.Key]record.Record, len(snap.Records))
	for _, r := range snap.Records {
		out[r.Key] = r
	}
	return out, nil
}
