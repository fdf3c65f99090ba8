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

// layout is the place of everything below the prefix of a namespace:
//
//	g/ID        gate: the physical name of a collection
//	n/NAME      identity of the collection with a name
//	s/ID        properties of a collection
//	d/ID/KEY    a record or a tombstone
//	x/ID/NAME   a name that the collection can no longer get
//	o/ID/MARK   a marker of CreateOnce
//	b/ID/NAME   the guard of a fixed-name record; the record is in the application's keys
//	r/ID        permissions that a fence took from the application
//	f/ID        written when that fence was set; t/ID has the latest fence to take permissions
//	w/ID        a permission that briefly returned behind a fence
//	p/KIND      identity of the collection of a fixed-name kind
//	i           identity of the namespace
//	m/OWNER     a mark
//	c/KIND      owner of a kind; e/ID is the kind that a collection is claimed for
//	l           labels that documents must have, by collection
//	u           written by Nudge
//	scratch     mark of a scratch namespace, which may be removed as a whole
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

// split splits a key into its sort, the identity and the rest.
func (l layout) split(key string) (what, id, rest string) {
	what, id, _ = strings.Cut(strings.TrimPrefix(key, string(l)), "/")
	id, rest, _ = strings.Cut(id, "/")
	return what, id, rest
}

// envelope is the value of a record's key: the time of the write, the guard, and the document. A
// tombstone has no document.
type envelope struct {
	wall  int64 // writer's clock in Unix milliseconds, for lag figures only
	guard record.Guard
	doc   bson.Raw // nil: a tombstone
}

// The first byte of an envelope is its format. The second has a bit for each part.
const (
	format      = 1
	hasGuard    = 1
	hasDocument = 2
)

// overhead is an upper bound for what a request adds to a key that it compares and puts.
const overhead = 64

// envelopeBytes is the maximum size of an envelope without its document.
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

// open parses an envelope. Its document shares the value's bytes.
func open(b []byte) (e envelope, err error) {
	// An unknown flag could change the meaning of the rest.
	if len(b) < 10 || b[0] != format || b[1]&^(hasGuard|hasDocument) != 0 {
		return e, errors.New("this version does not write such values: a newer version or somebody else wrote it")
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
		// A damaged document must not reach a transformer.
		if err := valid(e.doc); err != nil {
			return e, fmt.Errorf("document: %w", err)
		}
	} else if len(b) > 0 {
		return e, errors.New("the value is longer than it declares")
	}
	return e, nil
}

func versionAt(revision int64) record.Version {
	var v record.Version
	binary.BigEndian.PutUint64(v[:], uint64(revision))
	return v
}

func revisionOf(v record.Version) int64 { return int64(binary.BigEndian.Uint64(v[:])) }
