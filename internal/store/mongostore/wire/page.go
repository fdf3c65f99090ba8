package wire

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// RecordSet turns stored documents into records. It keeps all keys in one piece of memory, because
// a separate key for each record would be most of the allocations of a copy.
type RecordSet struct {
	Kind   string
	Fixed  bool // documents belong to the application and hold no guards
	Guards bool // keep tombstones and guards
	recs   []record.Record
	keys   []byte
	ends   []int
	Last   bson.RawValue // _id of the last document seen, including tombstones
}

// Grow allocates space for count records.
func (s *RecordSet) Grow(count int) {
	s.recs = make([]record.Record, 0, count)
	s.ends = make([]int, 0, count)
	s.keys = make([]byte, 0, 24*count)
}

// Add adds a document. The record keeps its bytes.
func (s *RecordSet) Add(doc []byte) error {
	l, err := LayoutOf(doc, !s.Fixed)
	if err != nil {
		return err
	}
	if l.IdStart == 0 {
		return errNoID
	}
	r := record.Record{Kind: s.Kind}
	var tombstone bool
	if l.dbcStart != 0 {
		r.Guard, tombstone = l.Guard(doc)
	}
	switch {
	case tombstone && !s.Guards:
		s.Last = l.ID
		return nil
	case tombstone:
		r.Tombstone = true
	default:
		if !s.Guards {
			r.Guard = record.Guard{}
		}
		if l.dbcStart != 0 {
			// The server stores _id first, so nothing before the guard moves.
			doc = l.Strip(doc)
		}
		r.Doc = doc
	}
	s.Last = l.ID
	switch l.ID.Type {
	case bson.TypeString, bson.TypeObjectID, bson.TypeBinary, bson.TypeDateTime:
		// These are already in canonical form. record.KeyOf returns the same, with two allocations.
		s.keys = append(s.keys, byte(l.ID.Type))
		s.keys = append(s.keys, l.ID.Value...)
	default:
		key, err := record.KeyOf(l.ID)
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		s.keys = append(s.keys, key...)
	}
	s.recs = append(s.recs, r)
	s.ends = append(s.ends, len(s.keys))
	return nil
}

// Records returns the added records, with keys.
func (s *RecordSet) Records() []record.Record {
	all := record.Key(s.keys)
	start := 0
	for i, end := range s.ends {
		s.recs[i].Key = all[start:end]
		start = end
	}
	return s.recs
}

// CompareKeys orders ids like the server's index of _id. It is needed only to walk two collections
// side by side.
func CompareKeys(a, b record.Key) int { return record.CompareValues(a.Value(), b.Value()) }
