package etcdstore

import (
	"context"
	"fmt"
	"maps"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// labelConditions is the number of comparisons for labels in a transaction, for any number of
// kinds.
const labelConditions = 1

// labels holds the labels that the collections of a namespace require, by identity, in one key.
// Each transaction compares the revision of the labels that its documents were checked against. So
// a process may use outdated labels safely.
type labels struct {
	of  map[string]record.Label
	mod int64 // revision of the key; 0: no such key
}

// learn stores labels that were read. changed reports that they differ from the known ones.
func (s *Store) learn(value []byte, mod int64) (have *labels, changed bool, err error) {
	have = &labels{mod: mod}
	if value != nil {
		if have.of, err = decoded[map[string]record.Label]("labels", value); err != nil {
			return nil, false, err
		}
	}
	before := s.known.Swap(have)
	return have, before == nil || before.mod != mod, nil
}

func (s *Store) readLabels(ctx context.Context) (*labels, error) {
	value, mod, err := s.get(ctx, "read labels", s.at.labels())
	if err != nil {
		return nil, err
	}
	have, _, err := s.learn(value, mod)
	return have, err
}

// labelled checks all put documents against the required labels, and returns the comparison that
// keeps them valid. ErrLabel: a document lacks its label.
func (s *Store) labelled(ctx context.Context, g gates, ops []clientv3.Op) ([]clientv3.Cmp, error) {
	if !g.managed() {
		return nil, nil
	}
	have := s.known.Load()
	lacks := ""
	if have != nil {
		lacks = s.lacks(have, g, ops)
	}
	if have == nil || lacks != "" { // the known labels may be outdated
		var err error
		if have, err = s.readLabels(ctx); err != nil {
			return nil, err
		}
		if lacks = s.lacks(have, g, ops); lacks != "" {
			return nil, fmt.Errorf("%s: %w", lacks, record.ErrLabel)
		}
	}
	return []clientv3.Cmp{unchanged(s.at.labels(), have.mod)}, nil
}

// lacks returns a kind with a put document that lacks its label. Empty: there is none.
func (s *Store) lacks(have *labels, g gates, ops []clientv3.Op) (kind string) {
	for id, tok := range g {
		need, ok := have.of[id]
		if !ok || tok.Fixed {
			continue
		}
		for _, op := range ops {
			// Deletes need no label.
			if !op.IsPut() || !strings.HasPrefix(string(op.KeyBytes()), s.at.records(id)) {
				continue
			}
			if e, err := open(op.ValueBytes()); err != nil || e.doc != nil && !need.On(e.doc) {
				return tok.Kind
			}
		}
	}
	return ""
}

// relabelled learns labels from the answers to looks, and reports whether they are new.
func (s *Store) relabelled(g gates, resp *clientv3.TxnResponse) (bool, error) {
	if !g.managed() {
		return false, nil
	}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if string(kv.Key) == s.at.labels() {
				_, changed, err := s.learn(kv.Value, kv.ModRevision)
				return changed, err
			}
		}
	}
	// The answers have no such key, so no labels are required.
	_, changed, err := s.learn(nil, 0)
	return changed, err
}

// Require stores the label next to the gates. The revision of that key then fails transactions that
// other processes checked against earlier labels.
func (s *Store) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	want, err := bson.Marshal(l)
	if err != nil {
		return fmt.Errorf("require label: %w", err)
	}
	// One transaction cannot compare all gates of a large namespace.
	for len(toks) > 0 {
		part := toks[:min(len(toks), s.most)]
		toks = toks[len(part):]
		g := gates{}
		for _, tok := range part {
			if tok.Fixed {
				return &record.UnsupportedError{What: "label of " + tok.Name, Reason: "it has a fixed-name kind, whose application may write anything"}
			}
			g[tok.ID] = tok
		}
		err := s.relabel(ctx, g, func(of map[string]record.Label) bool {
			changed := false
			for id := range g {
				// An equal label needs no write, so a repeated call is cheap.
				if has, err := bson.Marshal(of[id]); err != nil || string(has) != string(want) {
					of[id], changed = l, true
				}
			}
			return changed
		})
		if err != nil {
			return fmt.Errorf("require label: %w", err)
		}
	}
	return nil
}

// relabel changes the labels if the gates match.
func (s *Store) relabel(ctx context.Context, g gates, change func(map[string]record.Label) bool) error {
	for {
		have, err := s.readLabels(ctx)
		if err != nil {
			return err
		}
		// Other calls may read the known labels, so change a copy.
		next := maps.Clone(have.of)
		if next == nil {
			next = map[string]record.Label{}
		}
		var ops []clientv3.Op
		switch {
		// Even without a change, the transaction below checks the gates.
		case !change(next):
		case len(next) == 0:
			ops = append(ops, clientv3.OpDelete(s.at.labels()))
		default:
			value, err := bson.Marshal(next)
			if err != nil {
				return err
			}
			ops = append(ops, clientv3.OpPut(s.at.labels(), string(value)))
		}
		resp, err := s.write(ctx, "write labels", append(s.conditions(g), unchanged(s.at.labels(), have.mod)), ops, s.looks(g))
		switch {
		case readable(ctx, err): // the change is idempotent, so repeat it
		case err != nil:
			return err
		case resp.Succeeded:
			return nil
		default:
			if err := s.fenced(g, resp); err != nil {
				return err
			}
		}
	}
}

// unlabel removes the label of a dropped collection.
func (s *Store) unlabel(ctx context.Context, id string) error {
	return s.relabel(ctx, nil, func(of map[string]record.Label) bool {
		_, has := of[id]
		delete(of, id)
		return has
	})
}
