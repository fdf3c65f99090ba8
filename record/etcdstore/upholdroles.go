package etcdstore

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// What is looked after while an application's keys are fenced, and while they are not: see
// fenceroles.go.

// upholdKeys takes back the rights that somebody has given, or has left, meanwhile.
func (s *Store) upholdKeys(ctx context.Context, f record.Fence) (found []record.Breach, err error) {
	if f.To == "" {
		return nil, s.upholdOpen(ctx, f)
	}
	if in, err := s.inForce(ctx, f); err != nil || !in {
		return nil, err
	}
	if found, err = s.upholdGiven(ctx, f.Token); err != nil {
		return nil, err
	}
	status, err := s.conn.AuthStatus(ctx)
	if err != nil {
		return nil, s.rightsError("uphold", err)
	}
	if !status.Enabled {
		if _, err := s.conn.AuthEnable(ctx); err != nil {
			return nil, s.rightsError("turn authentication on again", err)
		}
		found = append(found, record.Breach{What: "authentication was turned off"})
	}
	in := s.keys(f.Token)
	gs, err := s.writers(ctx, in.Prefix)
	if err != nil {
		return found, err
	}
	end := clientv3.GetPrefixRangeEnd(in.Prefix)
	var taken []grant
	for _, g := range gs {
		if g.From < in.Prefix || g.To == "\x00" || g.To > end {
			found = append(found, record.Breach{What: "role " + g.Role + " was given the right to write these keys among others, which is not taken away: revoke it"})
			continue
		}
		// The fence may have ended since, which gives the right back. What ends it between this
		// look and the change keeps the application out until permitAsNamed.
		if in, err := s.inForce(ctx, f); err != nil || !in {
			return nil, errors.Join(err, s.permitAsNamed(ctx, f.Token, taken))
		}
		taken = append(taken, g)
		if _, err := s.permit(ctx, []grant{g}, false, nil); err != nil {
			return found, err
		}
		n, err := s.late(ctx, f.Token)
		if err != nil {
			return found, err
		}
		found = append(found, record.Breach{What: "role " + g.Role + " was given the right to write", Count: n})
	}
	return found, s.permitAsNamed(ctx, f.Token, taken)
}

// inForce reports whether a fence has not ended, and the kind has not its own name.
func (s *Store) inForce(ctx context.Context, f record.Fence) (bool, error) {
	over, _, err := s.get(ctx, "uphold "+f.Token.Kind, s.at.closed(f.Token.ID)+f.To)
	if err != nil || over != nil {
		return false, err
	}
	at, err := s.Locate(ctx, f.Token.ID)
	return at != f.Token.Kind, err
}

// upholdGiven returns what permitAsNamed has noted, twice, before it is forgotten: the first time
// the caller may die with it.
func (s *Store) upholdGiven(ctx context.Context, tok record.Token) (found []record.Breach, err error) {
	const told = "told"
	key, what := s.at.given(tok.ID), "rights given of "+tok.Kind
	value, mod, err := s.get(ctx, what, key)
	if err != nil || value == nil {
		return nil, err
	}
	n, err := s.late(ctx, tok)
	if err != nil {
		return nil, err
	}
	next := clientv3.OpPut(key, told)
	if string(value) == told {
		next = clientv3.OpDelete(key)
	}
	_, err = s.write(ctx, what, []clientv3.Cmp{unchanged(key, mod)}, []clientv3.Op{next}, nil)
	return []record.Breach{{What: "a controller that had stood still has given the application its right to write, for a moment: what it has deleted meanwhile is not counted", Count: n}}, err
}

// late is how many records of an application are as somebody has written them since its rights
// were taken who was not of ours: what of ours writes there leaves a guard.
func (s *Store) late(ctx context.Context, tok record.Token) (n int64, err error) {
	_, since, err := s.get(ctx, "late writes of "+tok.Kind, s.at.fenced(tok.ID))
	if err != nil || since == 0 {
		return 0, err // an earlier binary has set the fence
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
		if !compacted(err) || ctx.Err() != nil {
			return n, err
		}
	}
}

// upholdOpen undoes what a fence that has ended has taken: the process that set it stood still in the middle
// of that, and was killed before it could look again. What an administrator has revoked stays so.
func (s *Store) upholdOpen(ctx context.Context, f record.Fence) error {
	id, what := f.Token.ID, "uphold "+f.Token.Kind
	to, _, err := s.get(ctx, what, s.at.taking(id))
	if err != nil || to == nil {
		return err
	}
	over, _, err := s.get(ctx, what, s.at.closed(id)+string(to))
	if err != nil || over == nil {
		return err // it is being set
	}
	if at, err := s.Locate(ctx, id); err != nil || at != f.Token.Kind {
		return err
	}
	gs, err := s.grants(ctx, f)
	if err != nil {
		return err
	}
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
