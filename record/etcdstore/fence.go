package etcdstore

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// Prepare knows one class: a gate that every transaction compares.
func (s *Store) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	g, err := gateOf(tok)
	if err != nil {
		return "", "", err
	}
	if _, err := s.states(ctx, g, nil); err != nil {
		return "", "", fmt.Errorf("prepare: %w", err)
	}
	if want != "" && want != record.FenceUUID {
		return "", "", &record.UnsupportedError{What: "fence of " + tok.Name, Reason: fmt.Sprintf("etcd has none of class %s, only %s", want, record.FenceUUID)}
	}
	return record.FenceUUID, "", nil
}

// Fence gives a collection its next name. Once that is committed no transaction with an earlier
// one has an effect, and no read with one an answer.
func (s *Store) Fence(ctx context.Context, f record.Fence) error {
	if !f.Renames() || f.Class == record.FenceView {
		return &record.UnsupportedError{What: "fence of " + f.Token.Name, Reason: fmt.Sprintf("etcd has none of class %s", f.Class)}
	}
	for {
		err := s.fenceOnce(ctx, f)
		if !errors.Is(err, errBehind) {
			return err
		}
	}
}

func (s *Store) fenceOnce(ctx context.Context, f record.Fence) error {
	id, what := f.Token.ID, fmt.Sprintf("fence %s to %s", f.Token.Name, f.To)
	if f.Ends != "" {
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
	case gate.Count == 0:
		return fmt.Errorf("%s: collection %s: %w", what, id, record.ErrNotFound)
	case string(gate.Kvs[0].Value) == f.To:
		return nil
	case string(gate.Kvs[0].Value) != f.Token.Name:
		// This fence is an old one, sent late: it must not move the kind back.
		return fmt.Errorf("%s: it is at %s: %w", what, gate.Kvs[0].Value, record.ErrFenced)
	case closed.Count > 0:
		return fmt.Errorf("%s: it was given up, a new attempt needs a new name", what)
	case taken.Count > 0:
		return fmt.Errorf("%s: the name is taken", what)
	}
	resp, err = s.write(ctx, what, []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(s.at.gate(id)), "=", f.Token.Name), absent(s.at.closed(id) + f.To), absent(s.at.name(f.To)),
	}, []clientv3.Op{
		clientv3.OpPut(s.at.gate(id), f.To), clientv3.OpDelete(s.at.name(f.Token.Name)), clientv3.OpPut(s.at.name(f.To), id),
	}, nil)
	switch {
	case errors.Is(err, record.ErrUnknown) && ctx.Err() == nil:
		return errBehind // reading shows what became of it
	case err != nil:
		return err
	case !resp.Succeeded:
		return errBehind
	}
	return nil
}

// Prevent closes the name that a rename was announced to.
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
		resp, err := s.write(ctx, what, []clientv3.Cmp{clientv3.Compare(clientv3.Value(s.at.gate(f.Token.ID)), "=", f.Token.Name)},
			[]clientv3.Op{clientv3.OpPut(s.at.closed(f.Token.ID)+f.To, "given up")}, nil)
		switch {
		case errors.Is(err, record.ErrUnknown) && ctx.Err() == nil: // may be repeated
		case err != nil:
			return false, err
		case resp.Succeeded:
			return false, nil
		}
	}
}

// Hindrances: nothing holds up a transaction of etcd.
func (s *Store) Hindrances(context.Context, []record.Token) ([]string, error) { return nil, nil }

// Unfence does nothing: no kind here is given back to an application.
func (s *Store) Unfence(_ context.Context, f record.Fence) error { return managedAlone(f) }

// Uphold does nothing: a gate cannot be taken away by whoever knows nothing of it.
func (s *Store) Uphold(_ context.Context, f record.Fence, _ []string) ([]record.Breach, error) {
	return nil, managedAlone(f)
}

func managedAlone(f record.Fence) error {
	if f.Class == record.FenceUUID || f.Class == "" {
		return nil
	}
	return &record.UnsupportedError{What: "fence of " + f.Token.Name, Reason: fmt.Sprintf("etcd has none of class %s", f.Class)}
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
