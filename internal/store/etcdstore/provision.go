package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// oldest is the first etcd release with reliable watches. Earlier releases report progress before
// the events, or skip events after a compaction.
var oldest = []int{3, 5, 13}

// Check checks that etcd answers, that all answering members are new enough, and that the user may
// read and write below the prefix. Before a namespace begins, it also checks that the prefix is
// free.
func (s *Store) Check(ctx context.Context) error {
	members, err := s.members(ctx)
	if err != nil {
		return fmt.Errorf("check etcd: %w", err)
	}
	for _, status := range members {
		have := make([]int, len(oldest))
		if _, err := fmt.Sscanf(status.Version, "%d.%d.%d", &have[0], &have[1], &have[2]); err != nil {
			return fmt.Errorf("check etcd: version %q: %w", status.Version, err)
		}
		if slices.Compare(have, oldest) < 0 {
			return &record.UnsupportedError{What: "etcd " + status.Version, Reason: "version 3.5.13 or later is needed: in earlier versions watches may lose changes"}
		}
	}
	if slices.ContainsFunc(members, full) {
		s.log.Warn(errFull.Error(), zap.String("prefix", s.at.all())) // reads and streams still work
	}
	// This condition never holds. etcd checks the permissions before it evaluates a transaction. A
	// put would fail on a full etcd, and deletes need the same permission.
	never := clientv3.Compare(clientv3.ModRevision(s.at.identity()), "<", 0)
	_, err = s.write(ctx, "check etcd", []clientv3.Cmp{never},
		[]clientv3.Op{clientv3.OpDelete(s.at.scratch()), clientv3.OpDelete(s.at.gates(), clientv3.WithPrefix())},
		[]clientv3.Op{clientv3.OpGet(s.at.all(), clientv3.WithPrefix(), clientv3.WithCountOnly())})
	// The transaction changes nothing, so an unknown outcome only means no answer.
	if errors.Is(err, record.ErrUnknown) {
		return fmt.Errorf("%w: %w", record.ErrUnavailable, err)
	}
	if err != nil {
		return err
	}
	return s.free(ctx)
}

// free refuses a prefix without a namespace if no namespace may begin there.
func (s *Store) free(ctx context.Context) error {
	if id, err := s.Identity(ctx); err != nil || id.Database != "" {
		return err
	}
	_, err := s.alone(ctx)
	return err
}

// Holds returns an error if etcd cannot hold the kind as declared.
func (s *Store) Holds(_ context.Context, kind record.KindSpec) error {
	return s.refuse(kind, kind.Name)
}

// refuse returns the reason why etcd cannot hold a kind under a name. nil: it can.
func (s *Store) refuse(kind record.KindSpec, name string) error {
	_, known := s.fixed[kind.Name]
	switch {
	case kind.Fixed && !known && !strings.HasPrefix(name, sweepable):
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: "the place of the application's keys in etcd is unknown: give its prefix and format in etcd.kinds of that version"}
	case len(kind.Shape.Indexes) > 0:
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: fmt.Sprintf("etcd has no indexes, and the kind declares %s: drop it from the version that is in etcd", record.IndexName(kind.Shape.Indexes[0]))}
	case len(kind.Shape.Options) > 0:
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: "etcd has no collections with options (validator, collation): drop them from the version that is in etcd"}
	default:
		return nil
	}
}

// Describe returns the collection under a name. An application's keys form a collection under the
// kind's own name, unless they already form one under another name. Describe stores that on the
// first call.
func (s *Store) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	for {
		id, _, err := s.get(ctx, "describe "+name, s.at.name(name))
		if err != nil {
			return record.Info{}, err
		}
		tok := record.Token{Kind: kind.Name, Name: name, ID: string(id), Fixed: kind.Fixed}
		if id != nil {
			return record.Info{Exists: true, Token: tok}, nil
		}
		in := s.keys(tok)
		if in == nil || name != kind.Name {
			return record.Info{}, nil
		}
		there, err := s.inhabited(ctx, tok)
		if err != nil || !there {
			return record.Info{}, err
		}
		if err := s.make(ctx, tok); err != nil {
			return record.Info{}, err
		}
		// The keys may already form a collection under another name. Then none has this name.
		if is, _, err := s.get(ctx, "describe "+name, s.at.place(kind.Name)); err != nil || is == nil {
			return record.Info{}, err
		} else if at, err := s.Locate(ctx, string(is)); err != nil || at != name {
			return record.Info{}, err
		}
	}
}

// inhabited reports whether the application has any key of a kind.
func (s *Store) inhabited(ctx context.Context, tok record.Token) (bool, error) {
	resp, err := s.conn.Get(ctx, s.keys(tok).Prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return false, s.readError("keys of "+tok.Kind, err)
	}
	return len(resp.Kvs) > 0, nil
}

// make creates a collection, unless another one has the name or the application's keys.
func (s *Store) make(ctx context.Context, tok record.Token) error {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	id := hex.EncodeToString(random[:])
	cmps := []clientv3.Cmp{absent(s.at.name(tok.Name)), absent(s.at.gate(id))}
	ops := []clientv3.Op{clientv3.OpPut(s.at.gate(id), tok.Name), clientv3.OpPut(s.at.name(tok.Name), id)}
	if s.keys(tok) != nil {
		// An application's keys can form only one collection.
		cmps = append(cmps, absent(s.at.place(tok.Kind)))
		ops = append(ops, clientv3.OpPut(s.at.place(tok.Kind), id))
	}
	_, err := s.write(ctx, "provision "+tok.Name, cmps, ops, nil)
	if readable(ctx, err) {
		return nil // the next read shows the outcome
	}
	return err
}

// Size counts the records and estimates their size from the first ones.
func (s *Store) Size(ctx context.Context, tok record.Token) (record.Size, error) {
	from, in := s.at.records(tok.ID), s.keys(tok)
	if in != nil {
		from = in.Prefix
	}
	resp, err := s.conn.Get(ctx, from, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return record.Size{}, s.readError("size of "+tok.Name, err)
	}
	const some = 100
	// Counting is cheap in etcd, but only reading shows the size of values.
	seen, bytes := 0, 0
	_, err = s.walk(ctx, 0, &keyWalk{tok: tok, from: from, to: clientv3.GetPrefixRangeEnd(from), want: some, use: func(_ string, st state) (bool, error) {
		seen, bytes = seen+1, bytes+len(st.doc)
		return seen < some, nil
	}})
	if err != nil || seen == 0 {
		return record.Size{}, err
	}
	return record.Size{Records: resp.Count, Bytes: resp.Count * int64(bytes) / int64(seen)}, nil
}

// Provision creates a collection under a name if it is missing.
func (s *Store) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	if err := s.refuse(kind, name); err != nil {
		return record.Token{}, err
	}
	for {
		info, err := s.Describe(ctx, kind, name)
		if err != nil || info.Exists {
			return info.Token, err
		}
		tok := record.Token{Kind: kind.Name, Name: name, Fixed: kind.Fixed}
		if in := s.keys(tok); in != nil {
			taken, _, err := s.get(ctx, "provision "+name, s.at.place(kind.Name))
			if err != nil {
				return record.Token{}, err
			}
			there, err := s.inhabited(ctx, tok)
			if err != nil {
				return record.Token{}, err
			}
			if at := ""; taken != nil {
				if at, err = s.Locate(ctx, string(taken)); err != nil {
					return record.Token{}, err
				}
				if at != name {
					return record.Token{}, &record.UnsupportedError{What: "kind " + kind.Name, Reason: fmt.Sprintf("the keys below %s belong to collection %s already", in.Prefix, at)}
				}
				// A new target must be empty, or its content would mix with the application's keys.
			} else if there {
				return record.Token{}, &record.UnsupportedError{What: "kind " + kind.Name, Reason: fmt.Sprintf("there are keys below %s already, but the kind needs this prefix: remove the keys, or use another prefix", in.Prefix)}
			}
		}
		if err := s.make(ctx, tok); err != nil {
			return record.Token{}, err
		}
	}
}

// BuildIndexes refuses kinds with indexes.
func (s *Store) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	if err := s.refuse(kind, tok.Name); err != nil {
		return err
	}
	return s.open(ctx, tok)
}

// Expire does nothing, because etcd has no indexes. It checks the token.
func (s *Store) Expire(ctx context.Context, tok record.Token, _ map[string]int64) (map[string]int64, error) {
	return nil, s.open(ctx, tok)
}

// Reshape does nothing, because etcd has no indexes and options. It checks the token.
func (s *Store) Reshape(ctx context.Context, tok record.Token, _ record.KindSpec, _ []string) error {
	return s.open(ctx, tok)
}

// open checks that the gate matches a token.
func (s *Store) open(ctx context.Context, tok record.Token) error {
	g, err := gateOf(tok)
	if err != nil {
		return err
	}
	_, err = s.states(ctx, g, nil)
	return err
}

// splitPage is the number of keys in one read of Split.
const splitPage = 10_000

// leastRange is the minimum number of records in a range. Each range costs at least one page, and a
// page costs a round trip to both databases.
const leastRange = 500

// Split counts the keys, and reads them without values up to each cut.
func (s *Store) Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error) {
	if err := s.open(ctx, tok); err != nil {
		return nil, err
	}
	from, in := s.at.records(tok.ID), s.keys(tok)
	if in != nil {
		from = in.Prefix
	}
	to := clientv3.GetPrefixRangeEnd(from)
	count, err := s.conn.Get(ctx, from, clientv3.WithRange(to), clientv3.WithCountOnly())
	if err != nil {
		return nil, s.readError("split "+tok.Name, err)
	}
	var cuts []record.Cursor
	n = max(1, min(n, int(count.Count/leastRange)))
	each := max(1, count.Count/int64(n))
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
			// A long key cannot be a cut, so a later one becomes the cut.
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

// Purge removes tombstones that have not changed since they were read.
func (s *Store) Purge(ctx context.Context, tok record.Token) error {
	g, err := gateOf(tok)
	if err != nil {
		return err
	}
	from := s.at.records(tok.ID)
	var dead []attempt
	remove := func() error {
		defer func() { dead = dead[:0] }()
		return s.together(ctx, "purge", make([]record.Result, len(dead)), func(i int) (attempt, bool) { return dead[i], true }, func(i int) error {
			if err := s.commit(ctx, "purge", dead[i]); !errors.Is(err, errBehind) {
				return err
			}
			return nil // a record exists there again
		})
	}
	end := clientv3.GetPrefixRangeEnd(from)
	use := func(key string, st state) (bool, error) {
		from = key + "\x00"
		if st.live() {
			return true, nil
		}
		a := attempt{gates: g}
		a.compare(key, st.mod)
		a.remove(key)
		if dead = append(dead, a); len(dead) < s.most/2 {
			return true, nil
		}
		return true, remove()
	}
	after := "" // names up to here are done
	besides := func(name string, st state) (bool, error) {
		after = name + "\x00"
		if st.live() {
			return true, nil
		}
		l := s.slot(tok, record.StringKey(name))
		a := attempt{gates: g, cmps: []clientv3.Cmp{absent(l.doc)}, size: len(l.doc) + overhead}
		a.guarded(l, st)
		a.remove(l.guard)
		if dead = append(dead, a); len(dead) < s.most/4 {
			return true, nil
		}
		return true, remove()
	}
	// No single snapshot is needed. If etcd compacts the revision, continue at a newer one.
	for {
		var err error
		if s.keys(tok) != nil {
			_, err = s.walk(ctx, 0, s.nameWalk(tok, after, "", 0, besides))
		} else {
			_, err = s.walk(ctx, 0, &keyWalk{tok: tok, from: from, to: end, use: use})
		}
		if err == nil {
			return remove()
		}
		if !compacted(err) || ctx.Err() != nil {
			return err
		}
	}
}

// Drop removes a collection with everything under its identity. The gate goes first, so that
// streams learn of the drop before they see records go.
func (s *Store) Drop(ctx context.Context, tok record.Token) error {
	if err := s.open(ctx, tok); err != nil {
		return err
	}
	return s.drop(ctx, tok, true)
}

// drop removes a collection. Without records, the keys of an application stay.
func (s *Store) drop(ctx context.Context, tok record.Token, records bool) error {
	// The claim of the collection ends in the same transaction.
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
	prefixes := []string{s.at.records(tok.ID), s.at.closed(tok.ID), s.at.once(tok.ID), s.at.beside(tok.ID)}
	if in := s.keys(tok); in != nil {
		// The application's keys are the collection's records.
		if records {
			prefixes = append(prefixes, in.Prefix)
		}
		ops = append(ops, clientv3.OpDelete(s.at.place(tok.Kind)), clientv3.OpDelete(s.at.rights(tok.ID)),
			clientv3.OpDelete(s.at.fenced(tok.ID)), clientv3.OpDelete(s.at.taking(tok.ID)), clientv3.OpDelete(s.at.given(tok.ID)))
	}
	for _, prefix := range prefixes {
		ops = append(ops, clientv3.OpDelete(prefix, clientv3.WithPrefix()))
	}
	g, err := gateOf(tok)
	if err != nil {
		return err
	}
	if err := s.commit(ctx, "drop "+tok.Name, attempt{gates: g, ops: ops}); err != nil {
		return err
	}
	// The labels of all collections share one key, so they need a transaction of their own.
	return s.unlabel(ctx, tok.ID)
}

// sweepable is the name prefix of scratch collections.
const sweepable = "dbc_"

// Sweep drops all collections with a name prefix. They are scratch collections of a caller that may
// have died.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	if !strings.HasPrefix(prefix, sweepable) || prefix == sweepable {
		return fmt.Errorf("sweep: names that begin with %q are not those of scratch collections", prefix)
	}
	named, err := s.named(ctx, prefix)
	if err != nil {
		return err
	}
	for _, kv := range named {
		name := strings.TrimPrefix(string(kv.Key), s.at.name(""))
		err := s.Drop(ctx, record.Token{Kind: name, Name: name, ID: string(kv.Value)})
		// Another process may sweep the same collections.
		if err != nil && !errors.Is(err, record.ErrFenced) {
			return err
		}
	}
	return nil
}

// Names returns the names of collections with a prefix.
func (s *Store) Names(ctx context.Context, prefix string) ([]string, error) {
	named, err := s.named(ctx, prefix)
	names := make([]string, 0, len(named))
	for _, kv := range named {
		names = append(names, strings.TrimPrefix(string(kv.Key), s.at.name("")))
	}
	return names, err
}

// named returns the name keys with a prefix.
func (s *Store) named(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, error) {
	resp, err := s.conn.Get(ctx, s.at.name(prefix), clientv3.WithPrefix())
	if err != nil {
		return nil, s.readError("names of collections", err)
	}
	return resp.Kvs, nil
}

// claim is the stored form of a record.Claim.
type claim struct {
	Deployment string `bson:"deployment"`
	Version    string `bson:"version"`
	ID         string `bson:"id"`
}

func (c claim) owner() record.Owner {
	return record.Owner{Deployment: c.Deployment, Version: c.Version}
}

func decoded[T any](what string, b []byte) (v T, err error) {
	// Anybody who can write in etcd chooses the bytes.
	if err := rawdoc.Unmarshal(slices.Clone(b), &v); err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}
