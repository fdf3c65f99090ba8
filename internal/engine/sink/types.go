package sink

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"dbcontroller.dev/record"
)

// Document is what a sink keeps of a record: texts by field. Sinks may not modify it.
type Document map[string][]string

// Digest identifies the content of a document. The zero Digest belongs to no document.
type Digest [16]byte

// Digest returns the digest of a document. Equal documents have equal digests.
func (d Document) Digest() (out Digest) {
	h := sha256.New()
	// Lengths keep two neighbouring texts from looking like one.
	add := func(text string) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) // #nosec G115 -- a text of a record is smaller
		h.Write([]byte(text))
	}
	for _, field := range slices.Sorted(maps.Keys(d)) {
		add(field)
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(d[field])))) // #nosec G115 -- as above
		for _, text := range d[field] {
			add(text)
		}
	}
	copy(out[:], h.Sum(nil))
	return out
}

// Item is one write. It has an effect only if the sink's guard of the record is lower.
type Item struct {
	Kind  string
	Name  string
	Guard record.Guard // its Epoch is the generation
	Doc   Document     // nil writes a tombstone
	// Digest is the digest of Doc. The sink stores it, for Entries.
	Digest Digest
}

// Entry is what a sink has of one record.
type Entry struct {
	Name   string
	Guard  record.Guard
	Digest Digest
	Dead   bool // it is a tombstone
}

// State says what a sink contains. The zero State is an empty sink.
type State struct {
	// Generation is that of the latest scan.
	Generation uint64 `json:"generation"`
	// Source identifies the collections that the sink follows. Another one needs a new scan.
	Source string `json:"source"`
	// Position is the place up to which the changes are in the sink.
	Position record.Position `json:"position"`
	// Scan is the running scan. Nil: none runs.
	Scan *Scan `json:"scan,omitempty"`
}

// Scan is the progress of a scan.
type Scan struct {
	Kind string        `json:"kind,omitempty"` // empty: it has not begun
	From record.Cursor `json:"from,omitempty"`
	// Repair means that the sink was complete when the scan began, and followed the changes since.
	Repair bool `json:"repair,omitempty"`
}

// Complete reports whether the sink has all records up to Position.
func (s State) Complete() bool { return !s.Position.IsZero() && (s.Scan == nil || s.Scan.Repair) }

// clone returns a copy whose Scan is not shared.
func (s State) clone() State {
	if s.Scan != nil {
		scan := *s.Scan
		s.Scan = &scan
	}
	return s
}

// Sink is what a Follower writes into. A Follower makes one call at a time of Write, Forget and
// Purge.
type Sink interface {
	// State returns the latest stored State.
	State(ctx context.Context) (State, error)
	// Write writes items, each only over a lower guard, and then stores state. If it fails, any part
	// of the items may be written, and state may be stored only if all of them are. A record occurs
	// at most once in items.
	Write(ctx context.Context, items []Item, state State) error
	// Forget removes all documents and tombstones of lower generations.
	Forget(ctx context.Context, generation uint64) error
	// Purge removes the tombstones with a lower guard.
	Purge(ctx context.Context, before record.Guard) error
	// Entries returns the entries of a kind in the order of their names, tombstones included, with
	// names after a name. Fewer than limit mean that there are no more.
	Entries(ctx context.Context, kind, after string, limit int) ([]Entry, error)
	// Lookup returns the entries of the named records that the sink has, in any order.
	Lookup(ctx context.Context, kind string, names []string) ([]Entry, error)
}

// Source is the namespace that a Follower reads. Its errors are those of package record.
type Source interface {
	// Identity identifies the present collections. It changes when one is replaced, and not when one
	// is renamed.
	Identity(ctx context.Context) (string, error)
	// Position, Watch, Scan and Read work as those of record.Watcher and record.Reader, for the
	// kinds of the Follower. bytes is ReadRequest.Bytes.
	Position(ctx context.Context) (record.Position, error)
	Watch(ctx context.Context, from record.Position) (record.Stream, error)
	Scan(ctx context.Context, kind string, from record.Cursor, limit int, notBefore record.Version) (record.Page, error)
	Read(ctx context.Context, sels []record.Selector, notBefore record.Version, bytes int) (record.Snapshot, error)
}

// Transform makes the document of a record.
type Transform func(record.Record) (Document, error)
