package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/record"
)

// An application that writes its keys itself is kept out by its authorisation. etcd checks it
// where it applies a request, in the order of its log: what an application sends has its effect
// before the revision at which its role lost the right to write, or none, transactions and
// requests under way included. Users with the role root are bound by nothing, and keys with a
// lease go when it expires, no matter who may write; so such a key is no record (Store.found).
//
// A change of a role compares nothing. Who stood still in the middle of a fence, or of its end,
// for longer than a switch takes may so change a right at the wrong time. It looks again
// afterwards and takes that back, and where it was killed Uphold finds what it left. Until then
// an application that had lost its right has it again for a moment, behind a fence: so that this
// does not go unseen it is noted before it is taken back, and is a breach (record.Breach), with
// what the application has written. That it had its right and lost it is noted before it loses
// it (layout.taking), and undone wherever the fence has ended meanwhile.

// grant is the right of a role to write keys of an application.
type grant struct {
	Role string                  `json:"role"`
	From string                  `json:"from"`
	To   string                  `json:"to,omitempty"`
	Type clientv3.PermissionType `json:"type"`
}

// grants are the rights that a fence takes, and its end gives back: as Prepare has found them or,
// where a fence does not say, as an earlier one has noted them.
func (s *Store) grants(ctx context.Context, f record.Fence) (gs []grant, err error) {
	noted := []byte(f.Restore)
	if f.Restore == "" {
		if noted, _, err = s.get(ctx, "rights of kind "+f.Token.Kind, s.at.rights(f.Token.ID)); err != nil || noted == nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(noted, &gs); err != nil {
		return nil, fmt.Errorf("rights of the application of kind %s: %w", f.Token.Kind, err)
	}
	return gs, nil
}

// prepareRoles finds out which rights a fence of an application's keys takes away.
func (s *Store) prepareRoles(ctx context.Context, tok record.Token) (restore string, err error) {
	in := s.keys(tok)
	refuse := func(reason string) error {
		return &record.UnsupportedError{What: "fence of kind " + tok.Kind, Reason: reason}
	}
	status, err := s.conn.AuthStatus(ctx)
	if err != nil {
		return "", s.rightsError("prepare", err)
	}
	if !status.Enabled {
		return "", refuse("etcd has its authentication off, and nothing keeps the application out: give it a user and a role of its own, and turn authentication on")
	}
	gs, err := s.writers(ctx, in.Prefix)
	if err != nil {
		return "", err
	}
	if len(gs) == 0 {
		return "", refuse(fmt.Sprintf("no role may write below %s, so the application's is not known: grant it: etcdctl role grant-permission ROLE --prefix=true readwrite %s", in.Prefix, in.Prefix))
	}
	end := clientv3.GetPrefixRangeEnd(in.Prefix)
	for _, g := range gs {
		if g.From < in.Prefix || g.To == "\x00" || g.To > end {
			return "", refuse(fmt.Sprintf("role %s may write more than the keys below %s, and all of that would be taken away: grant it these by themselves, and revoke the rest or grant that in parts", g.Role, in.Prefix))
		}
	}
	b, err := json.Marshal(gs)
	return string(b), err
}

// writers are the rights to write any of an application's keys.
func (s *Store) writers(ctx context.Context, prefix string) (gs []grant, err error) {
	roles, err := s.conn.RoleList(ctx)
	if err != nil {
		return nil, s.rightsError("list roles", err)
	}
	end := clientv3.GetPrefixRangeEnd(prefix)
	for _, role := range roles.Roles {
		if role == "root" {
			continue
		}
		has, err := s.conn.RoleGet(ctx, role)
		if err != nil {
			return nil, s.rightsError("get role "+role, err)
		}
		for _, p := range has.Perm {
			from, to := string(p.Key), string(p.RangeEnd)
			meets := from < end && (to == "\x00" || to > prefix)
			if to == "" {
				meets = from >= prefix && from < end
			}
			if meets && p.PermType != authpb.Permission_READ {
				gs = append(gs, grant{role, from, to, clientv3.PermissionType(p.PermType)})
			}
		}
	}
	return gs, nil
}

// noRight: a role has no right that is just a grant's.
const noRight = clientv3.PermissionType(-1)

// rightTo is what a role may do with the keys of a grant. role is false where there is none.
func (s *Store) rightTo(ctx context.Context, g grant) (has clientv3.PermissionType, role bool, err error) {
	all, err := s.conn.RoleGet(ctx, g.Role)
	if errors.Is(rpctypes.Error(err), rpctypes.ErrRoleNotFound) {
		return noRight, false, nil
	}
	if err != nil {
		return noRight, false, s.rightsError("get role "+g.Role, err)
	}
	for _, p := range all.Perm {
		if string(p.Key) == g.From && string(p.RangeEnd) == g.To {
			return clientv3.PermissionType(p.PermType), true, nil
		}
	}
	return noRight, true, nil
}

// permit gives roles their rights, or only those to read, and reports what was otherwise. before,
// if not nil, is called before a right to write is taken.
func (s *Store) permit(ctx context.Context, gs []grant, write bool, before func() error) (changed []string, err error) {
	for _, g := range gs {
		want := g.Type
		if !write {
			want = clientv3.PermissionType(clientv3.PermRead)
		}
		has, role, err := s.rightTo(ctx, g)
		if err != nil {
			return changed, err
		}
		if !role || has == want {
			continue
		}
		if before != nil && has != noRight && has != clientv3.PermissionType(clientv3.PermRead) {
			if err := before(); err != nil {
				return changed, err
			}
		}
		if _, err := s.conn.RoleGrantPermission(ctx, g.Role, g.From, g.To, want); err != nil {
			return changed, s.rightsError("change role "+g.Role, err)
		}
		changed = append(changed, g.Role)
	}
	return changed, nil
}

// rightsError is why something about users and roles has failed.
func (s *Store) rightsError(what string, err error) error {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		return &record.UnsupportedError{What: what, Reason: "the user of the controllers may not: only one with the role root changes roles, and a fence of an application's keys does: etcdctl user grant-role USER root"}
	}
	if etcdconn.Refused(err) {
		return fmt.Errorf("%s: %w", what, s.conn.Denied(err))
	}
	return s.readError(what, err)
}

// fenceKeys is a fence, or an opening, of a kind whose keys are an application's.
func (s *Store) fenceKeys(ctx context.Context, f record.Fence) error {
	gs, err := s.grants(ctx, f)
	if err != nil {
		return err
	}
	opens := f.To == f.Token.Kind
	if !opens {
		// A fence of the past must take nothing from the application of now.
		if err := s.fenceOnce(ctx, f, false); err != nil && !errors.Is(err, errBehind) {
			return err
		}
		if f.Restore != "" {
			if _, err := s.write(ctx, "note rights", nil, []clientv3.Op{clientv3.OpPut(s.at.rights(f.Token.ID), f.Restore)}, nil); err != nil {
				return err
			}
		}
		if _, err := s.write(ctx, "note that rights go", nil, []clientv3.Op{clientv3.OpPut(s.at.taking(f.Token.ID), f.To)}, nil); err != nil {
			return err
		}
		if _, err = s.permit(ctx, gs, false, nil); err != nil {
			return errors.Join(err, s.giveBack(ctx, f.Token, gs))
		}
	}
	for err = errBehind; errors.Is(err, errBehind); {
		err = s.fenceOnce(ctx, f, true)
	}
	if err != nil && !opens {
		return errors.Join(err, s.giveBack(ctx, f.Token, gs))
	}
	if err != nil {
		return err
	}
	return s.permitAsNamed(ctx, f.Token, gs)
}

// giveBackTime bounds what is done for a caller that has given up.
const giveBackTime = 5 * time.Second

// giveBack is permitAsNamed for a fence that was not set, whatever the caller has time for.
func (s *Store) giveBack(ctx context.Context, tok record.Token, gs []grant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	return s.permitAsNamed(ctx, tok, gs)
}

// permitAsNamed has roles write if the kind bears its own name, and read if it does not. It looks
// again behind each change, for what it knew may have been of the past by then.
func (s *Store) permitAsNamed(ctx context.Context, tok record.Token, gs []grant) error {
	// Behind a fence nobody has rights but by a change of the past, this process's or another's.
	given := func() error {
		_, err := s.write(ctx, "note a right given", nil, []clientv3.Op{clientv3.OpPut(s.at.given(tok.ID), "given")}, nil)
		return err
	}
	for {
		at, err := s.Locate(ctx, tok.ID)
		if err != nil {
			return err
		}
		own, before := at == tok.Kind, given
		if own {
			before = nil
		}
		changed, err := s.permit(ctx, gs, own, before)
		if err != nil || len(changed) == 0 {
			return err
		}
	}
}

// unfenceKeys gives a kind back to its application.
func (s *Store) unfenceKeys(ctx context.Context, f record.Fence) error {
	gs, err := s.grants(ctx, f)
	if err != nil {
		return err
	}
	id, own, what := f.Token.ID, f.Token.Kind, "unfence "+f.Token.Kind
	for {
		if _, err := s.write(ctx, what, nil, []clientv3.Op{clientv3.OpPut(s.at.closed(id)+f.To, "ended")}, nil); err != nil {
			return err
		}
		at, err := s.Locate(ctx, id)
		if err != nil {
			return err
		}
		if at != f.To {
			return s.permitAsNamed(ctx, f.Token, gs)
		}
		resp, err := s.write(ctx, what, []clientv3.Cmp{clientv3.Compare(clientv3.Value(s.at.gate(id)), "=", f.To), absent(s.at.name(own))},
			[]clientv3.Op{clientv3.OpPut(s.at.gate(id), own), clientv3.OpDelete(s.at.name(f.To)), clientv3.OpPut(s.at.name(own), id),
				clientv3.OpDelete(s.at.fenced(id)), clientv3.OpDelete(s.at.given(id))}, nil)
		switch {
		case errors.Is(err, record.ErrUnknown) && ctx.Err() == nil: // reading shows what became of it
		case err != nil:
			return err
		case !resp.Succeeded:
			if taken, _, err := s.get(ctx, what, s.at.name(own)); err != nil || taken != nil && string(taken) != id {
				return errors.Join(err, fmt.Errorf("%s: the name is taken", what))
			}
		}
	}
}
