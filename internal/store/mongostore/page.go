package mongostore

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// recordSet turns stored documents into records. It keeps all keys in one piece of memory, because
// a separate key for each record would be most of the allocations of a copy.
type recordSet struct {
	kind   string
	fixed  bool // documents belong to the application and hold no guards
	guards bool // keep tombstones and guards
	recs   []record.Record
	keys   []byte
	ends   []int
	last   bson.RawValue // _id of the last document seen, including tombstones
}

// grow allocates space for count records.
func (s *recordSet) grow(count int) {
	s.recs = make([]record.Record, 0, count)
	s.ends = make([]int, 0, count)
	s.keys = make([]byte, 0, 24*count)
}

// add adds a document. The record keeps its bytes.
func (s *recordSet) add(doc []byte) error {
	l, err := layoutOf(doc, !s.fixed)
	if err != nil {
		return err
	}
	if l.idStart == 0 {
		return errNoID
	}
	r := record.Record{Kind: s.kind}
	var tombstone bool
	if l.dbcStart != 0 {
		r.Guard, tombstone = l.guard(doc)
	}
	switch {
	case tombstone && !s.guards:
		s.last = l.id
		return nil
	case tombstone:
		r.Tombstone = true
	default:
		if !s.guards {
			r.Guard = record.Guard{}
		}
		if l.dbcStart != 0 {
			// The server stores _id first, so nothing before the guard moves.
			doc = l.strip(doc)
		}
		r.Doc = doc
	}
	s.last = l.id
	switch l.id.Type {
	case bson.TypeString, bson.TypeObjectID, bson.TypeBinary, bson.TypeDateTime:
		// These are already in canonical form. record.KeyOf returns the same, with two allocations.
		s.keys = append(s.keys, byte(l.id.Type))
		s.keys = append(s.keys, l.id.Value...)
	default:
		key, err := record.KeyOf(l.id)
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
		s.keys = append(s.keys, key...)
	}
	s.recs = append(s.recs, r)
	s.ends = append(s.ends, len(s.keys))
	return nil
}

// records returns the added records, with keys.
func (s *recordSet) records() []record.Record {
	all := record.Key(s.keys)
	start := 0
	for i, end := range s.ends {
		s.recs[i].Key = all[start:end]
		start = end
	}
	return s.recs
}

// compareKeys orders ids like the server's index of _id. It is needed only to walk two collections
// side by side.
func compareKeys(a, b record.Key) int { return record.CompareValues(a.Value(), b.Value()) }
