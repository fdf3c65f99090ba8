package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// Prepare returns the only fence class of a kind. Managed kinds use their gate, which every
// transaction compares. Fixed-name kinds also use the permissions of the application's roles.
func (s *Store) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	g, err := gateOf(tok)
	if err != nil {
		return "", "", err
	}
	// A stale token must fail here, before an upgrade relies on the class.
	if _, err := s.states(ctx, g, nil); err != nil {
		return "", "", fmt.Errorf("prepare: %w", err)
	}
	// A kind without application keys needs no permissions.
	class := record.FenceUUID
	if s.keys(tok) != nil || want == record.FenceRole && standsIn(tok) {
		class = record.FenceRole
	}
	if want != "" && want != class {
		return "", "", &record.UnsupportedError{What: "fence of " + tok.Name, Reason: fmt.Sprintf("etcd has no fence of class %s for this kind, only %s", want, class)}
	}
	restore := ""
	if s.keys(tok) != nil {
		if restore, err = s.prepareRoles(ctx, tok); err != nil {
			return "", "", err
		}
	}
	return class, restore, nil
}

// Fence gives a collection its next name. After the commit, no transaction with an earlier name has
// an effect, and no read with one gets an answer.
func (s *Store) Fence(ctx context.Context, f record.Fence) error {
	if !f.Renames() || f.Class == record.FenceView {
		return &record.UnsupportedError{What: "fence of " + f.Token.Name, Reason: fmt.Sprintf("etcd has no fence of class %s", f.Class)}
	}
	if s.keys(f.Token) != nil || f.Class == record.FenceRole && standsIn(f.Token) {
		return s.fenceKeys(ctx, f)
	}
	for {
		// If another process changed the gate in between, decide again.
		err := s.fenceOnce(ctx, f, true)
		if !errors.Is(err, errBehind) {
			return err
		}
	}
}

// fenceOnce tries once to give a collection its next name. Without move it only checks whether that
// is possible.
func (s *Store) fenceOnce(ctx context.Context, f record.Fence, move bool) error {
	id, what := f.Token.ID, fmt.Sprintf("fence %s to %s", f.Token.Name, f.To)
	// End the earlier fence first, so that a late Uphold does not restore it after this operation.
	if f.Ends != "" && move {
		if _, err := s.write(ctx, what, nil, []clientv3.Op{clientv3.OpPut(s.at.closed(id)+f.Ends, "ended")}, nil); err != nil {
			return err
		}
	}
	resp, err := s.read(ctx, what, nil, []clientv3.Op{
		clientv3.OpGet(s.at.gate(id)), clientv3.OpGet(s.at.closed(id) + f.To), clientv3.OpGet(s.at.name(f.To)),
	}, nil)
	if err != nil {
		return err
	}
	gate, closed, taken := resp.Responses[0].GetResponseRange(), resp.Responses[1].GetResponseRange(), resp.Responses[2].GetResponseRange()
	switch {
	case len(gate.GetKvs()) == 0:
		return fmt.Errorf("%s: collection %s: %w", what, id, record.ErrNotFound)
	case string(gate.Kvs[0].Value) == f.To:
		return nil
	case string(gate.Kvs[0].Value) != f.Token.Name:
		// This fence is an old one that arrived late. It must not move the kind back.
		return fmt.Errorf("%s: it is at %s: %w", what, gate.Kvs[0].Value, record.ErrFenced)
	case closed.GetCount() > 0:
		return fmt.Errorf("%s: it was abandoned; a new attempt needs a new name", what)
	case taken.GetCount() > 0:
		return fmt.Errorf("%s: the name is taken", what)
	case !move:
		return nil
	}
	// Gate and names change together, so that no name leads to two collections.
	ops := []clientv3.Op{clientv3.OpPut(s.at.gate(id), f.To), clientv3.OpDelete(s.at.name(f.Token.Name)), clientv3.OpPut(s.at.name(f.To), id)}
	switch own := f.Token.Kind; {
	case s.keys(f.Token) == nil:
	case f.To == own: // the application gets its keys back
		ops = append(ops, clientv3.OpDelete(s.at.fenced(id)), clientv3.OpDelete(s.at.given(id)))
	case f.Token.Name == own:
		ops = append(ops, clientv3.OpPut(s.at.fenced(id), f.To), clientv3.OpDelete(s.at.given(id)))
	}
	// Compare again in the transaction: another process may have moved or closed the name since.
	resp, err = s.write(ctx, what, []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(s.at.gate(id)), "=", f.Token.Name), absent(s.at.closed(id) + f.To), absent(s.at.name(f.To)),
	}, ops, nil)
	switch {
	case readable(ctx, err):
		return errBehind // the next read shows the outcome
	case err != nil:
		return err
	case !resp.Succeeded:
		return errBehind
	}
	return nil
}

// Prevent closes the announced name of a rename.
func (s *Store) Prevent(ctx context.Context, f record.Fence) (moved bool, err error) {
	what := "prevent " + f.To
	if f.Class != record.FenceUUID && f.Class != "" {
		return false, fmt.Errorf("%s: a fence of class %s is removed instead", what, f.Class)
	}
	for {
		at, err := s.Locate(ctx, f.Token.ID)
		switch {
		case err != nil:
			return false, fmt.Errorf("%s: %w", what, err)
		case at == f.To:
			return true, nil
		case at != f.Token.Name:
			return false, fmt.Errorf("%s: it is at %s: %w", what, at, record.ErrFenced)
		}
		// Close the name only while the kind has its old one. A finished rename must stay.
		resp, err := s.write(ctx, what, []clientv3.Cmp{clientv3.Compare(clientv3.Value(s.at.gate(f.Token.ID)), "=", f.Token.Name)},
			[]clientv3.Op{clientv3.OpPut(s.at.closed(f.Token.ID)+f.To, "given up")}, nil)
		switch {
		case readable(ctx, err): // the write is idempotent, so repeat it
		case err != nil:
			return false, err
		case resp.Succeeded:
			return false, nil
		}
	}
}

// Ready does nothing: the gate of a kind always exists.
func (s *Store) Ready(context.Context, []record.Fence) error { return nil }

// Unready does nothing, like Ready.
func (s *Store) Unready(context.Context, []record.Fence) error { return nil }

// Hindrances returns nothing, because nothing delays an etcd transaction.
func (s *Store) Hindrances(context.Context, []record.Token) ([]record.Hindrance, error) {
	return nil, nil
}

// Unfence gives a kind back to its application. A managed kind has nothing to give back: its gate
// only moves on.
func (s *Store) Unfence(ctx context.Context, f record.Fence) error {
	if f.Class == record.FenceRole && (s.keys(f.Token) != nil || standsIn(f.Token)) {
		return s.unfenceKeys(ctx, f)
	}
	return managedAlone(f)
}

// Uphold checks and restores the permissions of a fenced application. Gates need no such check.
func (s *Store) Uphold(ctx context.Context, f record.Fence, _ []string) ([]record.Breach, error) {
	if f.Class == record.FenceRole && s.keys(f.Token) != nil {
		return s.upholdKeys(ctx, f)
	}
	if f.Class == record.FenceRole && standsIn(f.Token) {
		return nil, nil
	}
	return nil, managedAlone(f)
}

// standsIn reports whether a collection is a scratch one that represents an application's kind. Its
// fence changes only the name, since no role has permissions on it.
func standsIn(tok record.Token) bool {
	return tok.Fixed && strings.HasPrefix(tok.Kind, sweepable)
}

func managedAlone(f record.Fence) error {
	if f.Class == record.FenceUUID || f.Class == "" {
		return nil
	}
	return &record.UnsupportedError{What: "fence of " + f.Token.Name, Reason: fmt.Sprintf("etcd has no fence of class %s", f.Class)}
}

// Locate returns the present name of a collection.
func (s *Store) Locate(ctx context.Context, id string) (string, error) {
	name, _, err := s.get(ctx, "locate "+id, s.at.gate(id))
	if err != nil {
		return "", err
	}
	if name == nil {
		return "", fmt.Errorf("collection %s: %w", id, record.ErrNotFound)
	}
	return string(name), nil
}
