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

	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/record"
)

// A fence keeps out an application that writes its own keys through etcd's authorization. etcd
// checks a request where it applies it, in log order. Each request of the application takes effect
// before the revision at which its role loses the write permission, or never. That includes
// transactions and requests in flight. Users with the role root are exempt. Keys with a lease
// vanish when it expires, whatever the permissions are, so such a key is no valid record
// (Store.found).
//
// A change of a role has no condition. A process may pause in the middle of a fence, or of its end,
// for longer than a switch takes. It may then change a permission at the wrong time. It checks
// afterwards and reverts such a change. If it was killed, Uphold finds the change.
//
// Until then, a fenced application may have its permission again for a moment. To keep that
// visible, the process notes it before the revert (layout.given). Uphold reports it as a breach
// (record.Breach) with the number of records the application wrote. Before a fence takes
// permissions, it notes that too (layout.taking). If the fence has ended meanwhile, the permissions
// are restored.

// grant is a role's permission on an application's keys.
type grant struct {
	Role string                  `json:"role"`
	From string                  `json:"from"`
	To   string                  `json:"to,omitempty"`
	Type clientv3.PermissionType `json:"type"`
}

// holds reports whether all keys of a grant are the application's.
func (k Keys) holds(g grant) bool {
	end := clientv3.GetPrefixRangeEnd(k.Prefix)
	return g.From >= k.Prefix && g.From < end && g.To != "\x00" && g.To <= end
}

// grants returns the permissions that a fence takes and that its end restores. They come from
// Prepare or, if the fence does not have them, from the note of an earlier fence. It refuses
// permissions on other keys than the application's.
func (s *Store) grants(ctx context.Context, f record.Fence) (gs []grant, err error) {
	in := s.keys(f.Token)
	if in == nil {
		return nil, nil // a scratch collection: no role has permissions on it
	}
	noted, where, cure := []byte(f.Restore), "the record of the deployment", "find out which users can write to etcd and to the databases"
	if f.Restore == "" {
		// An earlier fence of this collection noted them.
		where, cure = "key "+s.at.rights(f.Token.ID), "find out which users can write to this etcd, and delete the key"
		if noted, _, err = s.get(ctx, "rights of kind "+f.Token.Kind, s.at.rights(f.Token.ID)); err != nil || noted == nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(noted, &gs); err != nil {
		return nil, fmt.Errorf("rights of the application of kind %s, in %s: %w", f.Token.Kind, where, err)
	}
	// Every writer of records can write the note, and this process has the role root. So a forged
	// note must give no rights to other keys.
	for _, g := range gs {
		if !in.holds(g) {
			return nil, fmt.Errorf("rights of the application of kind %s: %s names keys outside %s, so no controller wrote it: %s", f.Token.Kind, where, in.Prefix, cure)
		}
	}
	return gs, nil
}

// prepareRoles returns the permissions that a fence of an application's keys takes away.
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
		return "", refuse("authentication is off in etcd, so nothing can stop the application: give the application its own user and role, and turn authentication on")
	}
	gs, err := s.writers(ctx, in.Prefix)
	if err != nil {
		return "", err
	}
	if len(gs) == 0 {
		return "", refuse(fmt.Sprintf("no role may write below %s, so the role of the application is unknown: grant it: etcdctl role grant-permission ROLE --prefix=true readwrite %s", in.Prefix, in.Prefix))
	}
	// A fence revokes a grant as a whole, so a grant beyond these keys would break other uses.
	for _, g := range gs {
		if !in.holds(g) {
			return "", refuse(fmt.Sprintf("role %s may write more than the keys below %s, and the fence would revoke all of it: grant these keys separately, and revoke the rest or grant it separately", g.Role, in.Prefix))
		}
	}
	b, err := json.Marshal(gs)
	return string(b), err
}

// writers returns all permissions to write any of an application's keys.
func (s *Store) writers(ctx context.Context, prefix string) (gs []grant, err error) {
	roles, err := s.conn.RoleList(ctx)
	if err != nil {
		return nil, s.rightsError("list roles", err)
	}
	end := clientv3.GetPrefixRangeEnd(prefix)
	for _, role := range roles.Roles {
		// Users with root are exempt from permissions, so changing them has no effect.
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
			// An empty end means a single key.
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

// noRight means that a role has no permission with the exact range of a grant.
const noRight = clientv3.PermissionType(-1)

// rightTo returns a role's permission on the keys of a grant. role is false if the role does not
// exist.
func (s *Store) rightTo(ctx context.Context, g grant) (has clientv3.PermissionType, role bool, err error) {
	all, err := s.conn.RoleGet(ctx, g.Role)
	// An administrator may have deleted the role since.
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

// permit sets the permissions of roles: their full type or, without write, only read. It returns
// the roles that it changed. before, if not nil, runs before a write permission is taken.
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
		// An administrator removed the role, or it has the right permission already.
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

// rightsError wraps the error of a request about users and roles.
func (s *Store) rightsError(what string, err error) error {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		return &record.UnsupportedError{What: what, Reason: "the user of the controllers lacks the right: a fence of an application's keys changes roles, and only a user with the role root can do that: etcdctl user grant-role USER root"}
	}
	if etcdconn.Refused(err) {
		return fmt.Errorf("%s: %w", what, s.conn.Denied(err))
	}
	return s.readError(what, err)
}

// fenceKeys sets or opens a fence on a kind with application keys.
func (s *Store) fenceKeys(ctx context.Context, f record.Fence) error {
	gs, err := s.grants(ctx, f)
	if err != nil {
		return err
	}
	opens := f.To == f.Token.Kind
	if !opens {
		if err := s.authenticates(ctx, f); err != nil {
			return fmt.Errorf("fence %s to %s: %w", f.Token.Name, f.To, err)
		}
		// An old fence that arrives late must take nothing from the present application.
		if err := s.fenceOnce(ctx, f, false); err != nil && !errors.Is(err, errBehind) {
			return err
		}
		// Keep the permissions in etcd for a later Unfence or Uphold without f.Restore.
		if f.Restore != "" {
			if _, err := s.write(ctx, "note rights", nil, []clientv3.Op{clientv3.OpPut(s.at.rights(f.Token.ID), f.Restore)}, nil); err != nil {
				return err
			}
		}
		// Note this before the change: if this process dies, Uphold can undo a fence that ended.
		if _, err := s.write(ctx, "note that rights go", nil, []clientv3.Op{clientv3.OpPut(s.at.taking(f.Token.ID), f.To)}, nil); err != nil {
			return err
		}
		// Take the permissions before the gate changes, so that the gate's revision is after all of
		// the application's writes.
		var noted func() error
		if f.Standing {
			given, _, err := s.get(ctx, "read what was given", s.at.given(f.Token.ID))
			if err != nil {
				return err
			}
			if given != nil {
				return fmt.Errorf("fence %s to %s: %w", f.Token.Name, f.To, record.ErrLapsed)
			}
			noted = s.noteGiven(ctx, f.Token)
		}
		changed, err := s.permit(ctx, gs, false, noted)
		if err != nil {
			return errors.Join(err, s.giveBack(ctx, f.Token, gs))
		}
		if f.Standing && len(changed) > 0 {
			return fmt.Errorf("fence %s to %s: %w", f.Token.Name, f.To, record.ErrLapsed)
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

// authenticates refuses a fence while authentication is off: etcd then checks no permission at all,
// and the application writes on.
func (s *Store) authenticates(ctx context.Context, f record.Fence) error {
	if s.keys(f.Token) == nil {
		return nil // a scratch collection: no role has permissions on it
	}
	status, err := s.conn.AuthStatus(ctx)
	switch {
	case err != nil:
		return s.rightsError("look for authentication", err)
	case status.Enabled:
		return nil
	case f.Standing:
		return fmt.Errorf("%w: authentication was turned off in etcd", record.ErrLapsed)
	default:
		return errors.New("authentication is off in etcd, so nothing can stop the application: turn it on: etcdctl auth enable")
	}
}

// giveBackTime limits the cleanup after the caller has given up.
const giveBackTime = 5 * time.Second

// giveBack is permitAsNamed after a failed fence. It ignores the caller's cancellation.
func (s *Store) giveBack(ctx context.Context, tok record.Token, gs []grant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	return s.permitAsNamed(ctx, tok, gs)
}

// noteGiven returns a function that notes that roles could write behind a fence, before the permission is
// taken again. The note survives this process, and Uphold reports it.
func (s *Store) noteGiven(ctx context.Context, tok record.Token) func() error {
	return func() error {
		_, err := s.write(ctx, "note a right given", nil, []clientv3.Op{clientv3.OpPut(s.at.given(tok.ID), "given")}, nil)
		return err
	}
}

// permitAsNamed lets roles write if the kind has its own name, and only read otherwise. It checks
// again after each change, because the name may have changed meanwhile.
func (s *Store) permitAsNamed(ctx context.Context, tok record.Token, gs []grant) error {
	// Behind a fence only an outdated change, by this or another process, can have given
	// permissions.
	given := s.noteGiven(ctx, tok)
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
		// Close the name on each round, before the gate moves: a late Fence must not set it again.
		if _, err := s.write(ctx, what, nil, []clientv3.Op{clientv3.OpPut(s.at.closed(id)+f.To, "ended")}, nil); err != nil {
			return err
		}
		at, err := s.Locate(ctx, id)
		if err != nil {
			return err
		}
		// The kind has moved already, so only the permissions may be missing.
		if at != f.To {
			return s.permitAsNamed(ctx, f.Token, gs)
		}
		resp, err := s.write(ctx, what, []clientv3.Cmp{clientv3.Compare(clientv3.Value(s.at.gate(id)), "=", f.To), absent(s.at.name(own))},
			[]clientv3.Op{clientv3.OpPut(s.at.gate(id), own), clientv3.OpDelete(s.at.name(f.To)), clientv3.OpPut(s.at.name(own), id),
				clientv3.OpDelete(s.at.fenced(id)), clientv3.OpDelete(s.at.given(id))}, nil)
		switch {
		case readable(ctx, err): // the next read shows the outcome
		case err != nil:
			return err
		// The gate has moved, or the name is taken. Only the latter is final.
		case !resp.Succeeded:
			if taken, _, err := s.get(ctx, what, s.at.name(own)); err != nil || taken != nil && string(taken) != id {
				return errors.Join(err, fmt.Errorf("%s: the name is taken", what))
			}
		}
	}
}
