package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// Removal is the removal of a deployment, or of some of its kinds, that has begun. It is stored in
// place of the deployment's record, in a format that every binary refuses. So no controller, server
// or verb works on the deployment until the removal ends.
type Removal struct {
	At string `json:"at"` // RFC 3339, for people
	By string `json:"by"` // for people
	// Kinds are the kinds to forget. Empty: the deployment is removed.
	Kinds []RemovedKind `json:"kinds,omitempty"`
	// DropCopies also drops the collections of versions that no client has used.
	DropCopies bool `json:"dropCopies,omitempty"`
	// Acting says that parts may be gone, so that only the removal can go on.
	Acting bool `json:"acting,omitempty"`
	// Entered are the versions in whose databases parts may be gone.
	Entered []string `json:"entered,omitempty"`
	// Record is the record as it was.
	Record upgradestate.Deployment `json:"record"`
	// Revision is that of the key, and not stored.
	Revision int64 `json:"-"`
}

// RemovedKind is a kind of a version that is to be forgotten.
type RemovedKind struct {
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func (k RemovedKind) String() string { return k.Kind + " of " + k.Version }

// removalFormat is far above every format of a record. Binaries without removals refuse it too.
const removalFormat = 1_000_000

// removing is the value of the record's key during a removal.
type removing struct {
	Format  int      `json:"format"`
	Name    string   `json:"name"`
	Removal *Removal `json:"removal"`
}

// RemovalError is the ErrFormat of a deployment that is being removed.
type RemovalError struct {
	Name    string
	Removal Removal
}

func (e *RemovalError) Error() string {
	what, again := "removed", "run 'dbcontroller remove' again"
	switch r := e.Removal; {
	case len(r.Kinds) > 0:
		what, again = fmt.Sprintf("changed to be without %d kinds", len(r.Kinds)), "run 'dbcontroller forget-kinds' again"
	case len(r.Record.Namespaces) == 0:
		again += ", or call RemoveDeployment"
	}
	return fmt.Sprintf("%s is being %s since %s, by %s: to finish that, %s", e.Name, what, e.Removal.At, e.Removal.By, again)
}

// Unwrap makes it an ErrFormat.
func (e *RemovalError) Unwrap() error { return ErrFormat }

// removalIn returns the error for an unpacked value of the record's key that has a newer format, nil
// if it is no removal.
func removalIn(value []byte) error {
	var r removing
	if err := json.Unmarshal(value, &r); err != nil || r.Format != removalFormat || r.Removal == nil {
		return nil //nolint:nilerr // the caller reports the format
	}
	return &RemovalError{r.Name, *r.Removal}
}

// Removal returns the removal of the deployment that has begun. The record is that of the deployment
// if none has begun.
func (s *Store) Removal(ctx context.Context) (r Removal, begun bool, err error) {
	kv, err := s.record.read(ctx, s.coord, s.recordKey())
	if err != nil {
		return r, false, fmt.Errorf("get %s: %w", s.name, err)
	}
	d, err := s.stored(kv)
	var has *RemovalError
	switch {
	case err == nil:
		return Removal{Record: d, Revision: kv.Mod}, false, nil
	case !errors.As(err, &has):
		return r, false, err
	}
	r = has.Removal
	r.Revision, r.Record.Revision = kv.Mod, kv.Mod
	// What was a valid record must still be one: a removal deletes what it names.
	if err := upgradestate.Validate(r.Record); err != nil {
		return r, true, fmt.Errorf("%w: removal of %s: %w", ErrCorrupt, s.name, err)
	}
	if r.Record.Name != s.name {
		return r, true, fmt.Errorf("%w: removal of %s has the record of %q", ErrCorrupt, s.name, r.Record.Name)
	}
	return r, true, nil
}

// PutRemoval stores a removal over the record or removal with its revision, and returns it with the
// new one. A conflict means that somebody has changed the record since.
func (s *Store) PutRemoval(ctx context.Context, r Removal) (Removal, error) {
	value, err := json.Marshal(removing{removalFormat, s.name, &r})
	if err != nil {
		return r, fmt.Errorf("remove %s: %w", s.name, err)
	}
	r.Revision, err = s.replaceValue(ctx, value, r.Revision)
	return r, err
}

// BeginRemoval stores a removal in place of the record. If a process of the deployment has come since
// the caller looked, it puts the record back and returns an AliveError.
func (s *Store) BeginRemoval(ctx context.Context, r Removal) (Removal, error) {
	r, err := s.PutRemoval(ctx, r)
	if err != nil {
		return r, err
	}
	// A process that starts from here on refuses the record. Look for those that started before.
	if err := s.Idle(ctx); err != nil {
		return r, errors.Join(err, s.EndRemoval(context.WithoutCancel(ctx), r, r.Record))
	}
	return r, nil
}

// AliveError names the processes of a deployment that are alive.
type AliveError struct{ Processes []string }

func (e *AliveError) Error() string {
	are := "is alive, a process"
	if len(e.Processes) > 1 {
		are = "are alive, processes"
	}
	return fmt.Sprintf("%s %s of the deployment: stop all of them, and wait until their leases end", strings.Join(e.Processes, ", "), are)
}

// Idle returns an AliveError while a process of the deployment is alive.
func (s *Store) Idle(ctx context.Context) error {
	alive, err := s.Alive(ctx)
	if err == nil && len(alive) > 0 {
		err = &AliveError{alive}
	}
	return err
}

// EndRemoval stores a record in place of a removal: without the kinds that are forgotten, or as it
// was if the removal has not acted yet.
func (s *Store) EndRemoval(ctx context.Context, r Removal, d upgradestate.Deployment) error {
	if err := upgradestate.Validate(d); err != nil {
		return fmt.Errorf("%s would have an invalid record: %w", s.name, err)
	}
	value, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("end the removal of %s: %w", s.name, err)
	}
	_, err = s.replaceValue(ctx, value, r.Revision)
	return err
}

func (s *Store) replaceValue(ctx context.Context, value []byte, revision int64) (int64, error) {
	mod, err := s.coord.Commit(ctx, []coord.Condition{{Key: s.recordKey(), Revision: revision}}, []coord.Op{{Key: s.recordKey(), Value: packRecord(value)}})
	s.record.forget(s.recordKey())
	if err != nil {
		return 0, fmt.Errorf("%s has changed: run the command again: %w", s.name, err)
	}
	return mod, nil
}

// Erase deletes all keys of a deployment that is being removed, the record last. So a repetition
// after a crash finds the rest.
func (s *Store) Erase(ctx context.Context, r Removal) error {
	removed := coord.Condition{Key: s.recordKey(), Revision: r.Revision}
	const most = coord.MaxOps - 1
	for {
		kvs, err := s.coord.ListPage(ctx, s.key(""), "", most+1)
		if err != nil {
			return fmt.Errorf("delete the keys of %s: %w", s.name, err)
		}
		kvs = slices.DeleteFunc(kvs, func(kv coord.KV) bool { return kv.Key == s.recordKey() })
		if len(kvs) == 0 {
			break
		}
		var ops []coord.Op
		for _, kv := range kvs[:min(len(kvs), most)] {
			ops = append(ops, coord.Op{Key: kv.Key, Delete: true})
		}
		if _, err := s.coord.Commit(ctx, []coord.Condition{removed}, ops); err != nil {
			return fmt.Errorf("delete the keys of %s: %w", s.name, err)
		}
	}
	_, err := s.coord.Commit(ctx, []coord.Condition{removed}, []coord.Op{
		{Key: s.recordKey(), Delete: true}, {Key: indexKey(s.cfg.Prefix, s.name), Delete: true},
	})
	s.record.forget(s.recordKey())
	if err != nil {
		return fmt.Errorf("delete the record of %s: %w", s.name, err)
	}
	return nil
}

// Alive describes the processes that have a lease for this deployment, for people: its controllers,
// servers, proxies and applications, and whatever else holds one.
func (s *Store) Alive(ctx context.Context) ([]string, error) {
	servers, err := s.Servers(ctx)
	if err != nil {
		return nil, err
	}
	client := map[string]bool{}
	for _, server := range servers {
		client[server.ID] = server.Client
	}
	root := s.key("")
	kvs, _, err := s.coord.List(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", s.name, err)
	}
	var alive, others []string
	for _, kv := range kvs {
		what, rest, _ := strings.Cut(strings.TrimPrefix(kv.Key, root), "/")
		id, err := url.PathUnescape(rest)
		if err != nil {
			id = rest
		}
		switch {
		case what == "controllers":
			alive = append(alive, "controller "+id)
		case what == "servers" && client[id]:
			alive = append(alive, "application or proxy "+id)
		case what == "servers":
			alive = append(alive, "server "+id)
		case kv.Lease != 0:
			others = append(others, "a process that holds "+what+"/"+rest)
		}
	}
	// Every controller holds many keys: name them only if nothing else shows their process.
	if len(alive) == 0 {
		alive = others
	}
	return alive, nil
}
