package recordio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Records reads and writes the records of kinds.
type Records struct {
	*conn.Conn
	fences *fences.Fences
	// noBulkWrite remembers that a server has no bulkWrite, until the process ends.
	noBulkWrite atomic.Bool
}

// New returns the records of a connection's database.
func New(c *conn.Conn, f *fences.Fences) *Records { return &Records{Conn: c, fences: f} }

// Selections groups selectors by kind and removes those that others cover, so that no record is
// found twice.
func Selections(selectors []record.Selector) (map[string]*Selection, []string, error) {
	byKind := make(map[string]*Selection)
	var kinds []string
	exact := make(map[string]map[record.Key]struct{})
	for _, sel := range selectors {
		s := byKind[sel.Kind]
		if s == nil {
			s = &Selection{}
			byKind[sel.Kind] = s
			kinds = append(kinds, sel.Kind)
			exact[sel.Kind] = make(map[record.Key]struct{})
		}
		if sel.Key == "" {
			return nil, nil, fmt.Errorf("selector of kind %q has no key", sel.Kind)
		}
		if !sel.Prefix {
			exact[sel.Kind][sel.Key] = struct{}{}
			continue
		}
		name, ok := sel.Key.Name()
		// Prefixes select by name, and only string keys are names.
		if !ok {
			return nil, nil, fmt.Errorf("selector of kind %q: prefix %s is no string", sel.Kind, sel.Key)
		}
		s.Prefixes = append(s.Prefixes, name)
	}
	// Sorted, a prefix is followed by the prefixes that it covers.
	for kind, s := range byKind {
		slices.Sort(s.Prefixes)
		kept := s.Prefixes[:0]
		for _, p := range s.Prefixes {
			if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
				kept = append(kept, p)
			}
		}
		s.Prefixes = kept
		// A key below a selected prefix would be returned twice.
		for k := range exact[kind] {
			if name, ok := k.Name(); !ok || !s.Covers(name) {
				s.Keys = append(s.Keys, k)
			}
		}
	}
	return byKind, kinds, nil
}

// Covers reports whether a name has one of the prefixes. They must be sorted and disjoint.
func (s *Selection) Covers(name string) bool {
	i, found := slices.BinarySearch(s.Prefixes, name)
	return found || i > 0 && strings.HasPrefix(name, s.Prefixes[i-1])
}

// selects reports whether a found key was selected. The keys must be sorted.
func (s *Selection) selects(key record.Key) bool {
	if name, ok := key.Name(); ok && s.Covers(name) {
		return true
	}
	_, found := slices.BinarySearch(s.Keys, key)
	return found
}

// Read returns the selected records of several kinds at one snapshot. The first find chooses the
// time, not before req.NotBefore. The others read at that time, side by side.
func (n *Records) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	byKind, kinds, err := Selections(req.Select)
	if err != nil {
		return record.Snapshot{}, fmt.Errorf("read: %w", err)
	}
	for _, s := range byKind {
		slices.Sort(s.Keys)
	}
	var snap record.Snapshot
	err = n.AtSnapshot(ctx, req.NotBefore, func(ctx context.Context, o ReadOptions) error {
		// A retry starts with an empty result.
		snap = record.Snapshot{}
		o.Bound, o.keysOnly = NewBound(req.Bytes), req.KeysOnly
		reads := make([]*kindRead, len(kinds))
		var finds []find
		for i, kind := range kinds {
			tok, ok := req.Tokens[kind]
			if !ok {
				return fmt.Errorf("no token for kind %q", kind)
			}
			tok.Kind = kind
			if reads[i], err = newKindRead(tok, byKind[kind], req.Guards); err != nil {
				return err
			}
			finds = append(finds, reads[i].finds()...)
		}
		if err := n.beside(ctx, finds, &o); err != nil {
			return err
		}
		for _, r := range reads {
			snap.Records = r.appendTo(snap.Records)
		}
		if o.At.IsZero() {
			// Nothing was selected, so the empty result is true at any time.
			if o.At = conn.TimestampOf(req.NotBefore); o.At.IsZero() {
				var err error
				if o.At, err = n.MajorityNow(ctx); err != nil {
					return err
				}
			}
		}
		snap.Version = conn.VersionOf(o.At)
		return nil
	})
	if err != nil {
		return record.Snapshot{}, fmt.Errorf("read: %w", err)
	}
	return snap, nil
}

// ReadKind reads the selection of one kind, within a session.
func (n *Records) ReadKind(ctx context.Context, tok record.Token, s *Selection, o ReadOptions, guards bool, snap *record.Snapshot) (bson.Timestamp, error) {
	r, err := newKindRead(tok, s, guards)
	if err == nil {
		err = n.beside(ctx, r.finds(), &o)
	}
	if err == nil {
		snap.Records = r.appendTo(snap.Records)
	}
	return o.At, err
}

// sideEntry is a side collection's entry for a key.
type sideEntry struct {
	id    bson.RawValue
	guard record.Guard
}

func sideEntryOf(doc []byte) (record.Key, sideEntry, error) {
	l, err := wire.LayoutOf(doc, false)
	if err != nil {
		return "", sideEntry{}, err
	}
	key, err := record.KeyOf(l.ID)
	if err != nil {
		return "", sideEntry{}, err
	}
	e := sideEntry{id: l.ID}
	e.guard, _ = wire.GuardOf(doc)
	return key, e, nil
}

// tombstone returns the record of an entry without a document. It is a tombstone even if the entry
// is not marked as one: another writer deleted the document, and the guard is still valid.
func (e sideEntry) tombstone(kind string, key record.Key) record.Record {
	return record.Record{Kind: kind, Key: key, Guard: e.guard, Tombstone: true}
}

// snapshotLimit bounds the retries for a snapshot that the server cannot provide.
const snapshotLimit = 5 * time.Second

// errSnapshot means, when wrapped, that another snapshot may work.
var errSnapshot = errors.New("snapshot is not available")

// AtSnapshot calls read with a session until it has read at one snapshot not older than notBefore.
// The first find in read chooses the time.
func (n *Records) AtSnapshot(ctx context.Context, notBefore record.Version, read func(context.Context, ReadOptions) error) error {
	session, err := n.Mongo.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	return conn.Retry(ctx, snapshotLimit, func() error {
		err := read(mongo.NewSessionContext(ctx, session), ReadOptions{Snapshot: true, After: conn.TimestampOf(notBefore)})
		// Other errors do not go away with another snapshot.
		if errors.Is(err, errSnapshot) && ctx.Err() == nil {
			return err
		}
		return conn.Permanent(err)
	})
}

// classifyRead is classify for finds inside and outside transactions.
func classifyRead(what string, err error) error {
	if conn.HasCode(err, conn.CodeSnapshotUnavailable, conn.CodeSnapshotTooOld, conn.CodeCursorNotFound, conn.CodeInvalidOptions) && !conn.IsTransient(err) {
		return fmt.Errorf("%s: %w: %w", what, errSnapshot, err)
	}
	var command mongo.CommandError
	if errors.As(err, &command) && command.Code == conn.CodeUUIDMismatch && !conn.IsTransient(err) {
		expected, _ := command.Raw.Lookup("expectedCollection").StringValueOK()
		actual, _ := command.Raw.Lookup("actualCollection").StringValueOK()
		if expected != "" && expected == actual {
			// The token is current; only the snapshot is from before the rename.
			return fmt.Errorf("%s: %w: %w", what, errSnapshot, err)
		}
	}
	return conn.Classify(what, err)
}
