package etcdstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// keysAtOnce limits the keys in one read transaction, because each may hold a document of
// megabytes.
const keysAtOnce = 64

// snapshot reads keys at one revision, which it returns. revision 0 means the newest, which is not
// older than any finished command. It calls use for each existing key. It checks all gates, each
// together with its keys.
func (s *Store) snapshot(ctx context.Context, g gates, keys []string, revision int64, use func(key string, st state) error) (int64, error) {
	rest := maps.Clone(g)
	for first := true; first || len(keys) > 0 || len(rest) > 0; first = false {
		// Leave room for the comparison and the read of each gate.
		most := min(keysAtOnce, s.most/2)
		n, bytes := 0, 0
		for n < min(len(keys), most) && (n == 0 || bytes+len(keys[n])+overhead <= s.bytes) {
			bytes += len(keys[n]) + overhead
			n++
		}
		run := keys[:n]
		keys = keys[n:]
		ops := make([]clientv3.Op, 0, len(run))
		now := gates{}
		for _, key := range run {
			ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(revision)))
			id := s.gateOfKey(g, key)
			now[id] = g[id]
			delete(rest, id)
		}
		// After the last keys, check the gates of kinds without keys as well.
		for id, tok := range rest {
			if len(keys) > 0 || len(now) >= most {
				break
			}
			now[id] = tok
			delete(rest, id)
		}
		found, at, err := s.gated(ctx, now, ops)
		if err != nil {
			return 0, err
		}
		// All later transactions must read at the revision of the first.
		if revision == 0 {
			revision = at
		}
		for _, kv := range slices.Concat(found...) {
			st, err := s.found(g, kv)
			if err != nil {
				return 0, err
			}
			if err := use(string(kv.Key), st); err != nil {
				return 0, err
			}
		}
	}
	return revision, nil
}

// gated runs read operations if all gates match their tokens. It returns the results of each
// operation.
func (s *Store) gated(ctx context.Context, g gates, ops []clientv3.Op) (found [][]*mvccpb.KeyValue, revision int64, err error) {
	resp, err := s.read(ctx, "read", s.conditions(g), ops, s.looks(g))
	if err != nil {
		return nil, 0, err
	}
	if !resp.Succeeded {
		if err := s.fenced(g, resp); err != nil {
			return nil, 0, err
		}
		return nil, 0, fmt.Errorf("read: %w", record.ErrFenced) // cannot happen: only a gate can fail
	}
	found = make([][]*mvccpb.KeyValue, len(resp.Responses))
	for i, r := range resp.Responses {
		found[i] = r.GetResponseRange().GetKvs()
	}
	return found, resp.Header.GetRevision(), nil
}

// notBefore refuses a revision older than a version. Then either another cluster made the version,
// or this one was restored from a backup.
func notBefore(revision int64, v record.Version) error {
	if revision < revisionOf(v) {
		return fmt.Errorf("read not before %s: the cluster is only at %s: it is another cluster, or was restored", v, versionAt(revision))
	}
	return nil
}

// Read returns the selected records at one snapshot.
func (s *Store) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	return whole(ctx, func() (record.Snapshot, error) { return s.readOnce(ctx, req) })
}

// whole makes a read that may take several requests. It begins again if etcd has discarded the
// revision in between, so read must begin with an empty result.
func whole[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		got, err := read()
		if !compacted(err) || ctx.Err() != nil {
			return got, err
		}
	}
}

func (s *Store) readOnce(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	g, err := gatesOf(req.Tokens, func(yield func(string) bool) {
		for _, sel := range req.Select {
			if !yield(sel.Kind) {
				return
			}
		}
	})
	if err != nil {
		return record.Snapshot{}, err
	}
	names := map[string]record.Selector{} // single records, by key in etcd
	slots := map[string]slot{}
	var keys []string
	var prefixes []record.Selector
	for _, sel := range req.Select {
		if sel.Prefix {
			prefixes = append(prefixes, sel)
			continue
		}
		l := s.slot(req.Tokens[sel.Kind], sel.Key)
		// Each key is read once, even if it is selected twice.
		if _, twice := names[l.doc]; !twice {
			names[l.doc], slots[l.doc] = sel, l
			keys = append(keys, l.reads()...)
		}
	}
	var snap record.Snapshot
	size := 0
	add := func(kind string, key record.Key, st state) error {
		rec, ok, err := shown(kind, key, st, req.Guards, req.KeysOnly)
		if err != nil || !ok {
			return err
		}
		snap.Records = append(snap.Records, rec)
		if size += len(rec.Doc); req.Bytes > 0 && size > req.Bytes {
			return fmt.Errorf("read %d bytes: %w", size, record.ErrTooLarge)
		}
		return nil
	}
	have := map[string]state{} // fixed-name records, each with two keys
	revision, err := s.snapshot(ctx, g, keys, 0, func(key string, st state) error {
		// A fixed-name record has its guard in another key, so collect both first.
		if l, ok := slots[key]; !ok || l.in != nil {
			have[key] = st
			return nil
		}
		return add(names[key].Kind, names[key].Key, st)
	})
	if err != nil {
		return record.Snapshot{}, err
	}
	// Both halves of a fixed-name record are known only now.
	for key, l := range slots {
		if l.in == nil {
			continue
		}
		if st := l.held(have); st.live() || !st.guard.IsZero() {
			if err := add(names[key].Kind, names[key].Key, st); err != nil {
				return record.Snapshot{}, err
			}
		}
	}
	if err := notBefore(revision, req.NotBefore); err != nil {
		return record.Snapshot{}, err
	}
	seen := map[string]bool{}
	var walkers []walker
	for _, sel := range prefixes {
		// Only string names can have a prefix.
		name, ok := sel.Key.Name()
		if !ok {
			continue
		}
		tok := req.Tokens[sel.Kind]
		take := func(key string, k record.Key, st state) (bool, error) {
			// Selectors may overlap, but each record must occur once.
			if _, isName := k.Name(); !isName || seen[key] || names[key].Kind != "" {
				return true, nil
			}
			seen[key] = true
			return true, add(sel.Kind, k, st)
		}
		if in := s.keys(tok); in != nil {
			end := ""
			if name != "" {
				end = clientv3.GetPrefixRangeEnd(name)
			}
			walkers = append(walkers, s.nameWalk(tok, name, end, 0, func(name string, st state) (bool, error) {
				return take(in.Prefix+name, record.StringKey(name), st)
			}))
			continue
		}
		from := s.at.records(tok.ID) + prefixText(name)
		walkers = append(walkers, &keyWalk{tok: tok, from: from, to: clientv3.GetPrefixRangeEnd(from), use: func(key string, st state) (bool, error) {
			k, err := s.keyOf(tok, key)
			if err != nil {
				return false, err
			}
			return take(key, k, st)
		}})
	}
	if _, err := s.walk(ctx, revision, walkers...); err != nil {
		return record.Snapshot{}, err
	}
	snap.Version = versionAt(revision)
	return snap, nil
}

func (s *Store) keyOf(tok record.Token, key string) (record.Key, error) {
	if in := s.keys(tok); in != nil {
		return record.StringKey(strings.TrimPrefix(key, in.Prefix)), nil
	}
	return keyFrom(strings.TrimPrefix(key, s.at.records(tok.ID)))
}

// shown returns a state in the form that a reader requested. ok is false if the reader must not see
// it.
func shown(kind string, key record.Key, st state, guards, keysOnly bool) (rec record.Record, ok bool, err error) {
	if !st.live() && !guards {
		return record.Record{}, false, nil
	}
	rec = record.Record{Kind: kind, Key: key, Doc: st.doc, Err: st.err}
	if guards {
		// A state without a document is a tombstone, because absent records have no state.
		rec.Guard, rec.Tombstone = st.guard, !st.live()
	}
	if keysOnly && st.live() {
		id, err := st.doc.LookupErr("_id")
		if err != nil {
			return rec, false, fmt.Errorf("%s %s: %w", kind, key, err)
		}
		if rec.Doc, err = bson.Marshal(bson.D{{Key: "_id", Value: id}}); err != nil {
			return rec, false, fmt.Errorf("%s %s: %w", kind, key, err)
		}
	}
	return rec, true, nil
}

const (
	defaultPage = 1000
	maxPage     = 16 << 20 // bytes
)

// Scan returns the next page of a range at one snapshot.
func (s *Store) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	return whole(ctx, func() (record.Page, error) { return s.scanOnce(ctx, req) })
}

func (s *Store) scanOnce(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	g, err := gateOf(req.Token)
	if err != nil {
		return record.Page{}, err
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	base := s.at.records(req.Token.ID)
	in := s.keys(req.Token)
	from, to := base, clientv3.GetPrefixRangeEnd(base)
	if len(req.Range.From) > 0 {
		from = base + place(req.Range.From)
	}
	if len(req.Range.To) > 0 {
		to = base + place(req.Range.To)
	}
	page := record.Page{Done: true}
	size := 0
	use := func(key string, st state) (bool, error) {
		if in != nil {
			key = in.Prefix + key
		}
		k, err := s.keyOf(req.Token, key)
		if err != nil {
			return false, err
		}
		rec, ok, err := shown(req.Token.Kind, k, st, req.Guards, req.KeysOnly)
		if err != nil || !ok {
			return err == nil, err
		}
		// The record that does not fit begins the next page.
		if len(page.Records) == limit || (size > 0 && size+len(rec.Doc) > maxPage) {
			page.Next, page.Done = record.Cursor(k), false
			return false, nil
		}
		size += len(rec.Doc)
		page.Records = append(page.Records, rec)
		return true, nil
	}
	var revision int64
	first, last, none := "", "", from >= to // etcd would read an empty range as a single key
	if in != nil {
		first, last, none = names(req.Range)
	}
	switch {
	case none:
		revision, err = s.snapshot(ctx, g, nil, 0, nil)
	case in != nil:
		revision, err = s.walk(ctx, 0, s.nameWalk(req.Token, first, last, limit+1, use))
	default:
		revision, err = s.walk(ctx, 0, &keyWalk{tok: req.Token, from: from, to: to, want: limit + 1, use: use})
	}
	if err != nil {
		return record.Page{}, err
	}
	if err := notBefore(revision, req.NotBefore); err != nil {
		return record.Page{}, err
	}
	page.Version = versionAt(revision)
	return page, nil
}

// Get returns a live record.
func (s *Store) Get(ctx context.Context, tok record.Token, key record.Key) (record.Record, error) {
	g, err := gateOf(tok)
	if err != nil {
		return record.Record{}, err
	}
	if err := s.refuseClient(tok); err != nil {
		return record.Record{}, err
	}
	at := s.at.record(tok.ID, key)
	states, err := s.states(ctx, g, []string{at})
	if err != nil {
		return record.Record{}, fmt.Errorf("get %s %s: %w", tok.Kind, key, err)
	}
	// A tombstone counts as absent for clients.
	if !states[at].live() {
		return record.Record{}, fmt.Errorf("%s %s: %w", tok.Kind, key, record.ErrNotFound)
	}
	return record.Record{Kind: tok.Kind, Key: key, Doc: states[at].doc}, nil
}

// Select returns live records at the newest revision. A weaker read would not be cheaper.
func (s *Store) Select(ctx context.Context, req record.SelectRequest) ([]record.Record, error) {
	snap, err := s.Read(ctx, record.ReadRequest{Tokens: req.Tokens, Select: req.Select, Bytes: req.Bytes})
	return snap.Records, err
}

// listed returns the key range of a list. ok is false if the range is empty.
func (s *Store) listed(req record.ListRequest) (from, to string, limit int, ok bool) {
	base := s.at.records(req.Token.ID)
	from = base + prefixText(req.Prefix)
	to = clientv3.GetPrefixRangeEnd(from)
	if req.After != "" {
		// Continue after the key of After. No longer name begins with this text.
		from = max(from, base+prefixText(req.After)+"\x00\x00\xff")
	}
	limit = req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	return from, to, limit, from < to
}

// List returns live records in name order.
func (s *Store) List(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	if err := s.refuseClient(req.Token); err != nil {
		return nil, err
	}
	return whole(ctx, func() ([]record.Record, error) { return s.listOnce(ctx, req) })
}

func (s *Store) listOnce(ctx context.Context, req record.ListRequest) ([]record.Record, error) {
	from, to, limit, ok := s.listed(req)
	if !ok {
		return nil, s.open(ctx, req.Token)
	}
	var out []record.Record
	size := 0
	_, err := s.walk(ctx, 0, &keyWalk{tok: req.Token, from: from, to: to, want: limit, use: func(key string, st state) (bool, error) {
		k, err := s.keyOf(req.Token, key)
		if err != nil {
			return false, err
		}
		// Lists return only live records with string names.
		if _, isName := k.Name(); isName && st.live() {
			if out = append(out, record.Record{Kind: req.Token.Kind, Key: k, Doc: st.doc}); req.Full(&size, st.doc) {
				return false, nil
			}
		}
		return len(out) < limit, nil
	}})
	return slices.Clip(out), err
}

// ListNames reads keys without values, so it also returns names of tombstones.
func (s *Store) ListNames(ctx context.Context, req record.ListRequest) ([]string, error) {
	if err := s.refuseClient(req.Token); err != nil {
		return nil, err
	}
	return whole(ctx, func() ([]string, error) { return s.listNamesOnce(ctx, req) })
}

func (s *Store) listNamesOnce(ctx context.Context, req record.ListRequest) ([]string, error) {
	from, to, limit, ok := s.listed(req)
	if !ok {
		return nil, s.open(ctx, req.Token)
	}
	g, err := gateOf(req.Token)
	if err != nil {
		return nil, err
	}
	var names []string
	for revision := int64(0); ; {
		want := limit - len(names)
		found, at, err := s.gated(ctx, g, []clientv3.Op{
			clientv3.OpGet(from, clientv3.WithRange(to), clientv3.WithRev(revision), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(want))),
		})
		if err != nil {
			return nil, err
		}
		// Later pages must be read at the same revision, or names could be missed.
		if revision == 0 {
			revision = at
		}
		kvs := found[0]
		for _, kv := range kvs {
			k, err := s.keyOf(req.Token, string(kv.Key))
			if err != nil {
				return nil, err
			}
			if name, isName := k.Name(); isName {
				names = append(names, name)
			}
		}
		if len(kvs) < want || len(names) == limit {
			return names, nil
		}
		from = string(kvs[len(kvs)-1].Key) + "\x00"
	}
}
