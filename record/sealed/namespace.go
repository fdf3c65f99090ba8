package sealed

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

var _ record.Namespace = (*Namespace)(nil)

// Namespace is a namespace whose managed kinds are encrypted. What it does not mention is the
// backend's own.
type Namespace struct {
	record.Namespace
	sealer *Sealer
}

// Namespace puts s before a namespace.
func (s *Sealer) Namespace(ns record.Namespace) *Namespace { return &Namespace{ns, s} }

// Sealer is what encrypts the namespace.
func (n *Namespace) Sealer() *Sealer { return n.sealer }

// Stored is the namespace as it is stored, for who brings records under another key.
func (n *Namespace) Stored() record.Namespace { return n.Namespace }

// Scan returns the next page of a range, decrypted. What cannot be has its Err.
func (n *Namespace) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	page, err := n.Namespace.Scan(ctx, req)
	if err == nil && !req.KeysOnly {
		page.Records, err = n.sealer.openOrMark(ctx, only(req.Token), page.Records)
	}
	return page, err
}

// Read returns the records selected, decrypted. What cannot be has its Err.
func (n *Namespace) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := n.Namespace.Read(ctx, req)
	if err == nil && !req.KeysOnly {
		snap.Records, err = n.sealer.openOrMark(ctx, of(req.Tokens), snap.Records)
	}
	return snap, err
}

// Apply writes groups, encrypted.
func (n *Namespace) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return n.groups(ctx, b, n.Namespace.Apply)
}

// Load inserts groups, encrypted.
func (n *Namespace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return n.groups(ctx, b, n.Namespace.Load)
}

// groups writes those groups that can be stored. The others are Refused.
func (n *Namespace) groups(ctx context.Context, b record.Batch, write func(context.Context, record.Batch) ([]record.Result, error)) ([]record.Result, error) {
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
		n.sealer.late(ctx, err, 1) // who applies it again does so under the key of now
		return nil, err
	}
	for i, r := range done {
		results[places[i]] = r
	}
	return results, nil
}

// Swap replaces each record that still is what it was. Under another key it is the same
// record; when it is brought there while it is swapped, it is Changed, and read again.
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
		n.sealer.late(ctx, err, 1)
		return nil, err
	}
	for i, r := range done {
		results[places[i]] = r
	}
	return results, nil
}

// stored reads what is there now of the records to be swapped, as it is stored.
func (n *Namespace) stored(ctx context.Context, tok record.Token, swaps []record.Swap) (map[record.Key]record.Record, error) {
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
