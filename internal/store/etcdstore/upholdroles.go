package etcdstore

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// This file checks permissions while an application's keys are fenced, and after that. See
// fenceroles.go.

// upholdKeys takes back permissions that somebody granted during a fence, or that were left over.
func (s *Store) upholdKeys(ctx context.Context, f record.Fence) (found []record.Breach, err error) {
	if f.To == "" {
		return nil, s.upholdOpen(ctx, f)
	}
	if in, err := s.inForce(ctx, f); err != nil || !in {
		return nil, err
	}
	// Report earlier breaches first. They must not get lost if a later step fails.
	if found, err = s.upholdGiven(ctx, f); err != nil {
		return nil, err
	}
	status, err := s.conn.AuthStatus(ctx)
	if err != nil {
		return nil, s.rightsError("uphold", err)
	}
	// Without authentication etcd checks no permission at all.
	if !status.Enabled {
		if !f.Look {
			if _, err := s.conn.AuthEnable(ctx); err != nil {
				return nil, s.rightsError("turn authentication on again", err)
			}
		}
		found = append(found, record.Breach{What: "authentication was turned off"})
	}
	in := s.keys(f.Token)
	gs, err := s.writers(ctx, in.Prefix)
	if err != nil {
		return found, err
	}
	var taken []grant
	for _, g := range gs {
		// Revoking a wider grant would affect other keys, so report it and leave it to an operator.
		if !in.holds(g) {
			found = append(found, record.Breach{What: "role " + g.Role + " got the right to write these keys among others, and controllers do not revoke it: revoke it yourself"})
			continue
		}
		// The fence may have ended since, which restores the permission. If it ends between this
		// check and the change, the application is locked out until permitAsNamed below.
		if in, err := s.inForce(ctx, f); err != nil || !in {
			return nil, errors.Join(err, s.permitAsNamed(ctx, f.Token, taken))
		}
		if !f.Look {
			taken = append(taken, g)
			if _, err := s.permit(ctx, []grant{g}, false, nil); err != nil {
				return found, err
			}
		}
		// Count after the permission is gone, so that no write is missed.
		n, err := s.late(ctx, f.Token)
		if err != nil {
			return found, err
		}
		found = append(found, record.Breach{What: "role " + g.Role + " got the right to write", Count: n})
	}
	if f.Look {
		// The fence may have ended meanwhile, and what was found is then no breach.
		if in, err := s.inForce(ctx, f); err != nil || !in {
			return nil, err
		}
		return found, nil
	}
	return found, s.permitAsNamed(ctx, f.Token, taken)
}

// inForce reports whether a fence has not ended and the kind does not have its own name.
func (s *Store) inForce(ctx context.Context, f record.Fence) (bool, error) {
	over, _, err := s.get(ctx, "uphold "+f.Token.Kind, s.at.closed(f.Token.ID)+f.To)
	if err != nil || over != nil {
		return false, err
	}
	at, err := s.Locate(ctx, f.Token.ID)
	return at != f.Token.Kind, err
}

// upholdGiven returns the breach that permitAsNamed noted. It returns it in two calls before
// deleting the note, because the first caller may die before it stores the breach.
func (s *Store) upholdGiven(ctx context.Context, f record.Fence) (found []record.Breach, err error) {
	const told = "told"
	tok := f.Token
	key, what := s.at.given(tok.ID), "rights given of "+tok.Kind
	value, mod, err := s.get(ctx, what, key)
	if err != nil || value == nil {
		return nil, err
	}
	// Count before the note goes: a failed count must not lose the breach.
	n, err := s.late(ctx, tok)
	if err != nil {
		return nil, err
	}
	found = []record.Breach{{What: "a controller that was paused gave the application its right to write back for a moment; its deletes in that time are not counted", Count: n}}
	if f.Look {
		return found, nil
	}
	next := clientv3.OpPut(key, told)
	if string(value) == told {
		next = clientv3.OpDelete(key)
	}
	_, err = s.write(ctx, what, []clientv3.Cmp{unchanged(key, mod)}, []clientv3.Op{next}, nil)
	return found, err
}

// late returns the number of an application's records that another client has written since the
// fence. Our own writes leave a guard at the same revision.
func (s *Store) late(ctx context.Context, tok record.Token) (n int64, err error) {
	_, since, err := s.get(ctx, "late writes of "+tok.Kind, s.at.fenced(tok.ID))
	if err != nil || since == 0 {
		return 0, err // an earlier release set the fence and left no note
	}
	if tok.Name, err = s.Locate(ctx, tok.ID); err != nil {
		return 0, err
	}
	for {
		n = 0
		_, err := s.walk(ctx, 0, s.nameWalk(tok, "", "", 0, func(_ string, st state) (bool, error) {
			if st.mod > since && st.mod != st.beside {
				n++
			}
			return true, nil
		}))
		// etcd compacted the revision during the count, so begin again.
		if !compacted(err) || ctx.Err() != nil {
			return n, err
		}
	}
}

// upholdOpen restores permissions that an ended fence took late. The process that set the fence
// paused in the middle and died before its check. Permissions that an administrator revoked stay
// revoked.
func (s *Store) upholdOpen(ctx context.Context, f record.Fence) error {
	id, what := f.Token.ID, "uphold "+f.Token.Kind
	to, _, err := s.get(ctx, what, s.at.taking(id))
	if err != nil || to == nil {
		return err
	}
	over, _, err := s.get(ctx, what, s.at.closed(id)+string(to))
	if err != nil || over == nil {
		return err // the fence is being set right now
	}
	// Behind a fence the roles must not write.
	if at, err := s.Locate(ctx, id); err != nil || at != f.Token.Kind {
		return err
	}
	gs, err := s.grants(ctx, f)
	if err != nil {
		return err
	}
	// A fence leaves read permission. Any other state is an administrator's decision.
	var taken []grant
	for _, g := range gs {
		has, _, err := s.rightTo(ctx, g)
		if err != nil {
			return err
		}
		if has == clientv3.PermissionType(clientv3.PermRead) {
			taken = append(taken, g)
		}
	}
	return s.permitAsNamed(ctx, f.Token, taken)
}
