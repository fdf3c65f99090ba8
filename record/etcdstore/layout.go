package etcdstore

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// layout is where everything lies, below the prefix of a namespace:
//
//	g/ID        physical name of a collection: its gate
//	n/NAME      identity of the collection that has a name
//	s/ID        what a collection was made as
//	d/ID/KEY    a record, or a tombstone
//	x/ID/NAME   a name that the collection can no longer be given
//	o/ID/MARK   a marker of CreateOnce
//	b/ID/NAME   the guard of a record of a fixed-name kind, which lies with its application
//	r/ID        rights that a fence has taken from its application
//	f/ID        made when that fence was set; t/ID is the latest that was to take rights
//	w/ID        a right that came back behind a fence, for a moment
//	p/KIND      identity of the collection that a fixed-name kind is
//	i           identity of the namespace
//	m/OWNER     a mark
//	c/KIND      whose a kind is; e/ID is the kind that a collection is claimed as
//	l           which labels documents must have, by collection
//	u           written by Nudge
//	scratch     all of it may be thrown away
type layout string

func (l layout) all() string              { return string(l) }
func (l layout) gate(id string) string    { return string(l) + "g/" + id }
func (l layout) gates() string            { return string(l) + "g/" }
func (l layout) name(name string) string  { return string(l) + "n/" + name }
func (l layout) shape(id string) string   { return string(l) + "s/" + id }
func (l layout) records(id string) string { return string(l) + "d/" + id + "/" }
func (l layout) closed(id string) string  { return string(l) + "x/" + id + "/" }
func (l layout) once(id string) string    { return string(l) + "o/" + id + "/" }
func (l layout) beside(id string) string  { return string(l) + "b/" + id }
func (l layout) rights(id string) string  { return string(l) + "r/" + id }
func (l layout) fenced(id string) string  { return string(l) + "f/" + id }
func (l layout) taking(id string) string  { return string(l) + "t/" + id }
func (l layout) given(id string) string   { return string(l) + "w/" + id }
func (l layout) place(kind string) string { return string(l) + "p/" + kind }
func (l layout) identity() string         { return string(l) + "i" }
func (l layout) marks() string            { return string(l) + "m/" }
func (l layout) claims() string           { return string(l) + "c/" }
func (l layout) claim(kind string) string { return string(l) + "c/" + kind }
func (l layout) labels() string           { return string(l) + "l" }
func (l layout) nudge() string            { return string(l) + "u" }
func (l layout) scratch() string          { return string(l) + "scratch" }
func (l layout) claimed(id string) string { return string(l) + "e/" + id }

func (l layout) mark(o record.Owner) string {
	return l.marks() + base64.RawURLEncoding.EncodeToString([]byte(o.Deployment)) + "/" + base64.RawURLEncoding.EncodeToString([]byte(o.Version))
}

func (l layout) record(id string, key record.Key) string { return l.records(id) + keyText(key) }

// split takes a key apart into the kind of thing that it is, the identity, and the rest.
func (l layout) split(key string) (what, id, rest string) {
	what, id, _ = strings.Cut(strings.TrimPrefix(key, string(l)), "/")
	id, rest, _ = strings.Cut(id, "/")
	return what, id, rest
}

// envelope is the value of a record's key: who wrote it when, and the document or, for a
// tombstone, none.
type envelope struct {
	wall  int64 // Unix milliseconds at the writer, for lag figures only
	guard record.Guard
	doc   bson.Raw // nil for a tombstone
}

// The first byte of an envelope is its format, the second what it has.
const (
	format      = 1
	hasGuard    = 1
	hasDocument = 2
)

// overhead is more than a request adds to a key that it compares and puts.
const overhead = 64

// envelopeBytes is what an envelope adds to its document, at most.
const envelopeBytes = 2 + 8 + record.GuardSize

func (e envelope) bytes() string {
	b := make([]byte, 2, envelopeBytes+len(e.doc))
	b[0] = format
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMilli()))
	if !e.guard.IsZero() {
		b[1] |= hasGuard
		b = append(b, e.guard.Bytes()...)
	}
	if e.doc != nil {
		b[1] |= hasDocument
		b = append(b, e.doc...)
	}
	return string(b)
}

// open reads an envelope. Its document shares the value's bytes.
func open(b []byte) (e envelope, err error) {
	if len(b) < 10 || b[0] != format || b[1]&^(hasGuard|hasDocument) != 0 {
		return e, errors.New("the value is not one that this version writes: a newer one has, or somebody else")
	}
	has := b[1]
	e.wall, b = int64(binary.BigEndian.Uint64(b[2:])), b[10:]
	if has&hasGuard != 0 {
		if len(b) < record.GuardSize {
			return e, errors.New("the value is truncated")
		}
		e.guard, _ = record.GuardFrom(b[:record.GuardSize])
		b = b[record.GuardSize:]
	}
	if has&hasDocument != 0 {
		e.doc = bson.Raw(b)
		if err := valid(e.doc); err != nil {
			return e, fmt.Errorf("document: %w", err)
		}
	} else if len(b) > 0 {
		return e, errors.New("the value has more than it says")
	}
	return e, nil
}

func versionAt(revision int64) record.Version {
	var v record.Version
	binary.BigEndian.PutUint64(v[:], uint64(revision))
	return v
}

func revisionOf(v record.Version) int64 { return int64(binary.BigEndian.Uint64(v[:])) }
