package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// oldest is the first etcd whose watches do not lose events: earlier ones report progress that
// overtakes them, or skip some after a compaction.
var oldest = []int{3, 5, 13}

// Check checks whether etcd answers, and whether all members that do are new enough.
func (s *Store) Check(ctx context.Context) error {
	failed := errors.New("check etcd: it has no endpoints")
	answered := false
	for _, endpoint := range s.conn.Endpoints() {
		status, err := s.conn.Status(ctx, endpoint)
		if err != nil {
			failed = s.readError("check etcd", err)
			continue
		}
		answered = true
		have := make([]int, len(oldest))
		if _, err := fmt.Sscanf(status.Version, "%d.%d.%d", &have[0], &have[1], &have[2]); err != nil {
			return fmt.Errorf("check etcd: version %q: %w", status.Version, err)
		}
		if slices.Compare(have, oldest) < 0 {
			return &record.UnsupportedError{What: "etcd " + status.Version, Reason: "version 3.5.13 or later is needed: before it watches may lose changes"}
		}
	}
	if !answered {
		return failed
	}
	return nil
}

// refuse says what of a kind etcd cannot hold.
func refuse(kind record.KindSpec) error {
	switch {
	case kind.Fixed:
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: "etcd cannot keep an application out of keys that it writes itself: only managed kinds can be in etcd"}
	case len(kind.Shape.Indexes) > 0:
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: fmt.Sprintf("etcd has no indexes, and the kind declares %s: drop it from the version that is in etcd", record.IndexName(kind.Shape.Indexes[0]))}
	case len(kind.Shape.Options) > 0:
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: "etcd has no collections with options (validator, collation): drop them from the version that is in etcd"}
	default:
		return nil
	}
}

// Describe returns what has a name.
func (s *Store) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	id, _, err := s.get(ctx, "describe "+name, s.at.name(name))
	if err != nil || id == nil {
		return record.Info{}, err
	}
	return record.Info{Exists: true, Token: record.Token{Kind: kind.Name, Name: name, ID: string(id), Fixed: kind.Fixed}}, nil
}

// Size counts the records, and measures some.
func (s *Store) Size(ctx context.Context, tok record.Token) (record.Size, error) {
	g, err := gateOf(tok)
	if err != nil {
		return record.Size{}, err
	}
	from := s.at.records(tok.ID)
	resp, err := s.conn.Get(ctx, from, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return record.Size{}, s.readError("size of "+tok.Name, err)
	}
	const some = 100
	seen, bytes := 0, 0
	_, err = s.walk(ctx, g, from, clientv3.GetPrefixRangeEnd(from), 0, func(_ string, st state) (bool, error) {
		seen, bytes = seen+1, bytes+len(st.doc)
		return seen < some, nil
	})
	if err != nil || seen == 0 {
		return record.Size{}, err
	}
	return record.Size{Records: resp.Count, Bytes: resp.Count * int64(bytes) / int64(seen)}, nil
}

// Provision makes a collection under a name, once.
func (s *Store) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	if err := refuse(kind); err != nil {
		return record.Token{}, err
	}
	what := "provision " + name
	for {
		info, err := s.Describe(ctx, kind, name)
		if err != nil || info.Exists {
			return info.Token, err
		}
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		id := hex.EncodeToString(random[:])
		_, err = s.write(ctx, what, []clientv3.Cmp{absent(s.at.name(name)), absent(s.at.gate(id))},
			[]clientv3.Op{clientv3.OpPut(s.at.gate(id), name), clientv3.OpPut(s.at.name(name), id)}, nil)
		if err != nil && (!errors.Is(err, record.ErrUnknown) || ctx.Err() != nil) {
			return record.Token{}, err
		}
	}
}

// BuildIndexes refuses indexes.
func (s *Store) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	if err := refuse(kind); err != nil {
		return err
	}
	return s.open(ctx, tok)
}

// Expire has no index to change.
func (s *Store) Expire(ctx context.Context, tok record.Token, _ map[string]int64) error {
	return s.open(ctx, tok)
}

// open checks whether the gate is as a token has it.
func (s *Store) open(ctx context.Context, tok record.Token) error {
	g, err := gateOf(tok)
	if err != nil {
		return err
	}
	_, err = s.states(ctx, g, nil)
	return err
}

// splitPage is how many keys are read at once to find where ranges meet.
const splitPage = 10_000

// Split counts the keys and reads them, without values, up to each cut.
func (s *Store) Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error) {
	if err := s.open(ctx, tok); err != nil {
		return nil, err
	}
	from := s.at.records(tok.ID)
	to := clientv3.GetPrefixRangeEnd(from)
	count, err := s.conn.Get(ctx, from, clientv3.WithRange(to), clientv3.WithCountOnly())
	if err != nil {
		return nil, s.readError("split "+tok.Name, err)
	}
	var cuts []record.Cursor
	each := max(1, count.Count/int64(max(n, 1)))
	for seen := int64(0); n > 1; {
		resp, err := s.conn.Get(ctx, from, clientv3.WithRange(to), clientv3.WithKeysOnly(), clientv3.WithLimit(splitPage))
		if err != nil {
			return nil, s.readError("split "+tok.Name, err)
		}
		for _, kv := range resp.Kvs {
			if seen++; seen <= int64(len(cuts)+1)*each || len(cuts) == n-1 {
				continue
			}
			key, err := s.keyOf(tok, string(kv.Key))
			if err != nil {
				return nil, err
			}
			if len(key) < record.MaxCut {
				cuts = append(cuts, record.Cursor(key))
			}
		}
		if len(cuts) == n-1 || !resp.More {
			break
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
	ranges := make([]record.Range, len(cuts)+1)
	for i, cut := range cuts {
		ranges[i].To, ranges[i+1].From = cut, cut
	}
	return ranges, nil
}

// Purge removes tombstones that are still what they were.
func (s *Store) Purge(ctx context.Context, tok record.Token) error {
	g, err := gateOf(tok)
	if err != nil {
		return err
	}
	from := s.at.records(tok.ID)
	var dead []attempt
	remove := func() error {
		defer func() { dead = dead[:0] }()
		return s.together(ctx, "purge", len(dead), func(i int) (attempt, bool) { return dead[i], true }, func(i int) error {
			if err := s.commit(ctx, "purge", dead[i]); !errors.Is(err, errBehind) {
				return err
			}
			return nil // somebody lives there now
		})
	}
	end := clientv3.GetPrefixRangeEnd(from)
	use := func(key string, st state) (bool, error) {
		from = key + "\x00"
		if st.live() {
			return true, nil
		}
		a := attempt{gates: g, ops: []clientv3.Op{clientv3.OpDelete(key)}, keys: []string{key}, size: len(key)}
		a.compare(key, st.mod)
		if dead = append(dead, a); len(dead) < s.most/2 {
			return true, nil
		}
		return true, remove()
	}
	// No snapshot is needed: where one is compacted, a newer one goes on.
	for {
		_, err := s.walk(ctx, g, from, end, 0, use)
		if err == nil {
			return remove()
		}
		if !compacted(err) || ctx.Err() != nil {
			return err
		}
	}
}

// Drop removes a collection with all that lies under its identity, its gate first: who follows
// it learns of that before it sees records go.
func (s *Store) Drop(ctx context.Context, tok record.Token) error {
	if err := s.open(ctx, tok); err != nil {
		return err
	}
	kind, _, err := s.get(ctx, "drop", s.at.claimed(tok.ID))
	if err != nil {
		return err
	}
	ops := []clientv3.Op{
		clientv3.OpDelete(s.at.gate(tok.ID)), clientv3.OpDelete(s.at.name(tok.Name)), clientv3.OpDelete(s.at.shape(tok.ID)),
	}
	if kind != nil {
		ops = append(ops, clientv3.OpDelete(s.at.claimed(tok.ID)), clientv3.OpDelete(s.at.claim(string(kind))))
	}
	for _, prefix := range []string{s.at.records(tok.ID), s.at.closed(tok.ID), s.at.once(tok.ID)} {
		ops = append(ops, clientv3.OpDelete(prefix, clientv3.WithPrefix()))
	}
	g, err := gateOf(tok)
	if err != nil {
		return err
	}
	return s.commit(ctx, "drop "+tok.Name, attempt{gates: g, ops: ops})
}

// sweepable begins the names of scratch collections.
const sweepable = "dbc_"

// Sweep drops every collection whose name begins with a prefix: scratch collections of a caller
// that may have died.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	if !strings.HasPrefix(prefix, sweepable) || prefix == sweepable {
		return fmt.Errorf("sweep: names that begin with %q are not those of scratch collections", prefix)
	}
	resp, err := s.conn.Get(ctx, s.at.name(prefix), clientv3.WithPrefix())
	if err != nil {
		return s.readError("sweep", err)
	}
	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.at.name(""))
		err := s.Drop(ctx, record.Token{Kind: name, Name: name, ID: string(kv.Value)})
		if err != nil && !errors.Is(err, record.ErrFenced) {
			return err
		}
	}
	return nil
}

// claim is what is stored of one.
type claim struct {
	Deployment string `bson:"deployment"`
	Version    string `bson:"version"`
	ID         string `bson:"id"`
}

func (c claim) owner() record.Owner {
	return record.Owner{Deployment: c.Deployment, Version: c.Version}
}

func decoded[T any](what string, b []byte) (v T, err error) {
	if err := bson.Unmarshal(slices.Clone(b), &v); err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}
