package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller/record"
)

const (
	keysPerFind     = 1000 // of an $in
	prefixesPerFind = 100  // of an $or
)

// readOptions says how a find reads and what it returns.
type readOptions struct {
	keysOnly bool // _id alone
	guards   bool // with the guard element of managed kinds
	// snapshot reads with read concern snapshot, at the time at if it is set, otherwise
	// at one not before after. Without it the find belongs to a transaction.
	snapshot  bool
	at, after bson.Timestamp
}

// append appends what ends a find.
func (o readOptions) append(dst []byte) []byte {
	if o.keysOnly {
		var at int
		dst, at = beginElement(dst, bson.TypeEmbeddedDocument, "projection")
		dst = bsoncore.AppendInt32Element(dst, "_id", 1)
		if o.guards {
			dst = bsoncore.AppendInt32Element(dst, guardField, 1)
		}
		dst = endDocument(dst, at)
	}
	if !o.snapshot {
		return dst
	}
	dst, start := beginElement(dst, bson.TypeEmbeddedDocument, "readConcern")
	dst = bsoncore.AppendStringElement(dst, "level", "snapshot")
	switch {
	case !o.at.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "atClusterTime", o.at.T, o.at.I)
	case !o.after.IsZero():
		dst = bsoncore.AppendTimestampElement(dst, "afterClusterTime", o.after.T, o.after.I)
	}
	return endDocument(dst, start)
}

// find runs a find command to its end and yields each document, whose bytes are the
// caller's. ctx carries the session that getMore needs. It returns the snapshot's time.
func (n *Namespace) find(ctx context.Context, p place, command []byte, yield func(doc []byte) error) (bson.Timestamp, error) {
	what := "find " + p.coll
	raw, err := n.run(ctx, command)
	if err != nil {
		return bson.Timestamp{}, classifyRead(what, err)
	}
	r, err := parseReply(raw)
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("%s: %w", what, err)
	}
	at := r.at
	for {
		if err := each(r.docs, yield); err != nil {
			return at, fmt.Errorf("%s: %w", what, err)
		}
		if r.id == 0 {
			return at, nil
		}
		if r, err = n.getMore(ctx, p, r.id, 0); err != nil {
			return at, classifyRead(what, err)
		}
	}
}

// findKeys finds documents by key, in several commands if need be.
func (n *Namespace) findKeys(ctx context.Context, p place, keys []record.Key, o readOptions, yield func(doc []byte) error) error {
	_, err := n.findSelected(ctx, p, selection{keys: keys}, o, yield)
	return err
}

// selection is the keys and prefixes asked for of one kind, none covered by another.
type selection struct {
	keys     []record.Key
	prefixes []string
}

func (n *Namespace) findSelected(ctx context.Context, p place, s selection, o readOptions, yield func(doc []byte) error) (bson.Timestamp, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	at := o.at
	run := func(batch int, filter func(dst []byte) []byte) error {
		b := appendCommand((*buf)[:0], "find", p)
		b, start := beginElement(b, bson.TypeEmbeddedDocument, "filter")
		b = endDocument(filter(b), start)
		b = bsoncore.AppendInt32Element(b, "batchSize", int32(batch))
		*buf = endDocument(o.append(b), 0)
		got, err := n.find(ctx, p, *buf, yield)
		if err == nil && o.snapshot {
			// Everything else is read at the same time.
			at, o.at = got, got
		}
		return err
	}
	for keys := range slices.Chunk(s.keys, keysPerFind) {
		err := run(len(keys)+1, func(b []byte) []byte { return appendIn(b, keys) })
		if err != nil {
			return at, err
		}
	}
	for prefixes := range slices.Chunk(s.prefixes, prefixesPerFind) {
		err := run(10000, func(b []byte) []byte { return appendPrefixes(b, prefixes) })
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

func appendIn(dst []byte, keys []record.Key) []byte {
	dst, id := beginElement(dst, bson.TypeEmbeddedDocument, "_id")
	dst, in := beginElement(dst, bson.TypeArray, "$in")
	for i, k := range keys {
		dst = appendIndexed(dst, k[0], i)
		dst = append(dst, k[1:]...)
	}
	return endDocument(endDocument(dst, in), id)
}

func appendPrefixes(dst []byte, prefixes []string) []byte {
	dst, or := beginElement(dst, bson.TypeArray, "$or")
	for i, p := range prefixes {
		dst = appendIndexed(dst, byte(bson.TypeEmbeddedDocument), i)
		start := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		var id int
		dst, id = beginElement(dst, bson.TypeEmbeddedDocument, "_id")
		dst = bsoncore.AppendStringElement(dst, "$gte", p)
		if end := successor(p); end != "" {
			dst = bsoncore.AppendStringElement(dst, "$lt", end)
		}
		dst = endDocument(endDocument(dst, id), start)
	}
	return endDocument(dst, or)
}

// successor is the least string that is greater than all with the prefix, or empty when
// only the end of all strings is.
func successor(prefix string) string {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case r == utf8.RuneError && size == 1:
			// Not text. A shorter prefix selects more than was asked for, which the
			// reader drops.
		case r == utf8.MaxRune:
		case r == 0xD7FF:
			return prefix + "\uE000" // surrogates are no text
		default:
			return prefix + string(r+1)
		}
	}
	return ""
}

// selections sorts selectors by kind and drops those that others cover, so that no
// record is found twice.
func selections(selectors []record.Selector) (map[string]*selection, []string, error) {
	byKind := make(map[string]*selection)
	var kinds []string
	exact := make(map[string]map[record.Key]struct{})
	for _, sel := range selectors {
		s := byKind[sel.Kind]
		if s == nil {
			s = &selection{}
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
		if !ok {
			return nil, nil, fmt.Errorf("selector of kind %q: prefix %s is no string", sel.Kind, sel.Key)
		}
		s.prefixes = append(s.prefixes, name)
	}
	for kind, s := range byKind {
		slices.Sort(s.prefixes)
		kept := s.prefixes[:0]
		for _, p := range s.prefixes {
			if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
				kept = append(kept, p)
			}
		}
		s.prefixes = kept
		for k := range exact[kind] {
			if name, ok := k.Name(); !ok || !s.covers(name) {
				s.keys = append(s.keys, k)
			}
		}
	}
	return byKind, kinds, nil
}

// covers reports whether a name has one of the (sorted, disjoint) prefixes.
func (s *selection) covers(name string) bool {
	i, found := slices.BinarySearch(s.prefixes, name)
	return found || i > 0 && strings.HasPrefix(name, s.prefixes[i-1])
}

// selects reports whether a found key was asked for.
func (s *selection) selects(key record.Key) bool {
	if name, ok := key.Name(); ok && s.covers(name) {
		return true
	}
	_, found := slices.BinarySearch(s.keys, key)
	return found
}

// Read finds records of several kinds at one snapshot.
func (n *Namespace) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	byKind, kinds, err := selections(req.Select)
	if err != nil {
		return record.Snapshot{}, fmt.Errorf("read: %w", err)
	}
	for _, s := range byKind {
		slices.Sort(s.keys)
	}
	var snap record.Snapshot
	err = n.atSnapshot(ctx, req.NotBefore, func(ctx context.Context, o readOptions) error {
		snap = record.Snapshot{}
		for _, kind := range kinds {
			tok, ok := req.Tokens[kind]
			if !ok {
				return fmt.Errorf("no token for kind %q", kind)
			}
			tok.Kind = kind
			at, err := n.readKind(ctx, tok, byKind[kind], o, req.Guards, &snap)
			if err != nil {
				return err
			}
			o.at = at
		}
		if o.at.IsZero() {
			// Nothing was selected, and nothing is true at any time.
			if o.at = timestampOf(req.NotBefore); o.at.IsZero() {
				var err error
				if o.at, err = n.majorityNow(ctx); err != nil {
					return err
				}
			}
		}
		snap.Version = versionOf(o.at)
		return nil
	})
	if err != nil {
		return record.Snapshot{}, fmt.Errorf("read: %w", err)
	}
	return snap, nil
}

func (n *Namespace) readKind(ctx context.Context, tok record.Token, s *selection, o readOptions, guards bool, snap *record.Snapshot) (bson.Timestamp, error) {
	p, err := placeOf(tok)
	if err != nil {
		return o.at, err
	}
	rs := recordSet{kind: tok.Kind, guards: guards && !tok.Fixed}
	at, err := n.findSelected(ctx, p, *s, o, func(doc []byte) error { return rs.add(doc) })
	if err != nil {
		return at, err
	}
	found := rs.records()
	found = slices.DeleteFunc(found, func(r record.Record) bool { return !s.selects(r.Key) })
	if !guards || !tok.Fixed {
		snap.Records = append(snap.Records, found...)
		return at, nil
	}
	o.at = at
	entries := make(map[record.Key]sideEntry)
	_, err = n.findSelected(ctx, place{coll: GuardsName(tok.Kind)}, *s, o, func(doc []byte) error {
		key, entry, err := sideEntryOf(doc)
		if err == nil && s.selects(key) {
			entries[key] = entry
		}
		return err
	})
	if err != nil {
		return at, err
	}
	for i := range found {
		if e, ok := entries[found[i].Key]; ok {
			found[i].Guard = e.guard
			delete(entries, found[i].Key)
		}
	}
	snap.Records = append(snap.Records, found...)
	for key, e := range entries {
		snap.Records = append(snap.Records, e.tombstone(tok.Kind, key))
	}
	return at, nil
}

// sideEntry is what a side collection says of a key.
type sideEntry struct {
	id    bson.RawValue
	guard record.Guard
}

func sideEntryOf(doc []byte) (record.Key, sideEntry, error) {
	l, err := layoutOf(doc)
	if err != nil {
		return "", sideEntry{}, err
	}
	key, err := record.KeyOf(l.id)
	if err != nil {
		return "", sideEntry{}, err
	}
	e := sideEntry{id: l.id}
	e.guard, _ = guardOf(doc)
	return key, e, nil
}

// tombstone is the record of an entry whose document is not there. That is a tombstone
// even where the entry is not marked as one: somebody else deleted the document, and
// the guard stands.
func (e sideEntry) tombstone(kind string, key record.Key) record.Record {
	return record.Record{Kind: kind, Key: key, Guard: e.guard, Tombstone: true}
}

// snapshotLimit is how long a snapshot that the server cannot give is asked for.
const snapshotLimit = 5 * time.Second

// errSnapshot, wrapped, says that another snapshot may do.
var errSnapshot = errors.New("snapshot is not available")

// atSnapshot calls read, with a session, until it has read at one snapshot not older
// than notBefore. The first find in it chooses the time.
func (n *Namespace) atSnapshot(ctx context.Context, notBefore record.Version, read func(context.Context, readOptions) error) error {
	session, err := n.client.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	return backoff.Retry(func() error {
		err := read(mongo.NewSessionContext(ctx, session), readOptions{snapshot: true, after: timestampOf(notBefore)})
		if errors.Is(err, errSnapshot) && ctx.Err() == nil {
			return err
		}
		return permanent(err)
	}, newBackoff(ctx, snapshotLimit))
}

// classifyRead is classify for finds outside and inside transactions.
func classifyRead(what string, err error) error {
	if hasCode(err, codeSnapshotUnavailable, codeSnapshotTooOld, codeCursorNotFound, codeInvalidOptions) && !isTransient(err) {
		return fmt.Errorf("%s: %w: %w", what, errSnapshot, err)
	}
	var command mongo.CommandError
	if errors.As(err, &command) && command.Code == codeUUIDMismatch && !isTransient(err) {
		expected, _ := command.Raw.Lookup("expectedCollection").StringValueOK()
		actual, _ := command.Raw.Lookup("actualCollection").StringValueOK()
		if expected != "" && expected == actual {
			// The token is right now; only the snapshot is from before the rename.
			return fmt.Errorf("%s: %w: %w", what, errSnapshot, err)
		}
	}
	return classify(what, err)
}
