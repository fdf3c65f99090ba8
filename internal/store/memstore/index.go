package memstore

import (
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// uniqueIndex is a unique index over top-level fields of live documents. It excludes tombstones,
// like a real backend's index that is partial on a live flag.
type uniqueIndex struct {
	name   string
	fields []string
	sparse bool
	owners map[string]record.Key
}

// parseIndex reads an index spec in the form of listIndexes. ix is nil for an index that is not
// unique. The store keeps such an index only for Describe.
func parseIndex(spec bson.Raw) (name string, ix *uniqueIndex, err error) {
	name, _ = spec.Lookup("name").StringValueOK()
	keys, ok := spec.Lookup("key").DocumentOK()
	if name == "" || !ok {
		return "", nil, fmt.Errorf("index %s: needs a name and a key", spec)
	}
	// Other indexes refuse nothing and need no entries.
	if unique, _ := spec.Lookup("unique").BooleanOK(); !unique {
		return name, nil, nil
	}
	ix = &uniqueIndex{name: name, owners: map[string]record.Key{}}
	ix.sparse, _ = spec.Lookup("sparse").BooleanOK()
	elems, err := keys.Elements()
	if err != nil {
		return "", nil, fmt.Errorf("index %s: %w", name, err)
	}
	for _, e := range elems {
		ix.fields = append(ix.fields, e.Key())
	}
	return name, ix, nil
}

// value returns the index entry of a document. ok is false if it has none.
func (ix *uniqueIndex) value(doc bson.Raw) (value string, ok bool) {
	if doc == nil {
		return "", false
	}
	found := false
	for _, field := range ix.fields {
		v, err := doc.LookupErr(field)
		// A missing field counts as null, as in MongoDB, so two documents without it conflict.
		if err != nil {
			v = bson.RawValue{Type: bson.TypeNull}
		} else {
			found = true
		}
		key, err := record.KeyOf(v)
		if err != nil {
			key = record.Key(v.Value)
		}
		// The length keeps the values of neighbouring fields apart.
		value += fmt.Sprintf("%d:%s", len(key), string(key))
	}
	return value, found || !ix.sparse
}

// check returns a conflict if the pending writes would violate the index.
func (ix *uniqueIndex) check(pending *writes) error {
	added := map[string]bool{}
	for _, key := range pending.order {
		v, ok := ix.value(pending.states[key].doc)
		if !ok {
			continue
		}
		owner, taken := ix.owners[v]
		if taken && owner != key {
			// The owner may be giving the value up in the same commit.
			if s, moves := pending.states[owner]; moves {
				still, ok := ix.value(s.doc)
				taken = ok && still == v
			}
		} else {
			taken = false
		}
		// added finds two writes of this commit with one value.
		if taken || added[v] {
			c := &conflict{index: ix.name, key: key}
			if taken {
				c.holder = owner
			}
			return c
		}
		added[v] = true
	}
	return nil
}

// conflict is a record that a unique index refuses.
type conflict struct {
	index  string
	key    record.Key
	holder record.Key // holder of the value; empty: another record of the same transaction
	in     string     // name of the collection
}

func (c *conflict) Error() string {
	return fmt.Sprintf("index %s, record %s: %v", c.index, c.key, record.ErrConflict)
}

func (c *conflict) Unwrap() error { return record.ErrConflict }

// move removes the old values of the pending writes from the index and adds the new ones.
func (ix *uniqueIndex) move(col *collection, pending *writes, clock uint64) {
	// Remove all old values first: records of one commit may exchange them.
	for _, key := range pending.order {
		if v, ok := ix.value(col.at(key, clock).doc); ok && ix.owners[v] == key {
			delete(ix.owners, v)
		}
	}
	for _, key := range pending.order {
		if v, ok := ix.value(pending.states[key].doc); ok {
			ix.owners[v] = key
		}
	}
}

// validator is the supported part of a collection validator: fields that must exist. A fence's
// validator has Nothing set and refuses everything.
type validator struct {
	Exists  []string `json:"exists,omitempty"`
	Nothing bool     `json:"nothing,omitempty"`
}

func (v *validator) accepts(doc bson.Raw) bool {
	if v == nil {
		return true
	}
	for _, field := range v.Exists {
		if _, err := doc.LookupErr(field); err != nil {
			return false
		}
	}
	return !v.Nothing
}

// parseValidator reads the validator of create options. nil: there is none.
func parseValidator(options bson.Raw) (*validator, error) {
	if len(options) == 0 {
		return nil, nil
	}
	given, ok := options.Lookup("validator").DocumentOK()
	if !ok {
		return nil, nil
	}
	elems, err := given.Elements()
	if err != nil {
		return nil, fmt.Errorf("validator: %w", err)
	}
	v := &validator{}
	for _, e := range elems {
		cond, ok := e.Value().DocumentOK()
		// Refuse unknown validators, because accepting all documents would hide faults in tests.
		if exists, _ := cond.Lookup("$exists").BooleanOK(); !ok || !exists {
			return nil, &record.UnsupportedError{
				What:   "validator " + given.String(),
				Reason: "memstore knows {field: {$exists: true}} only",
			}
		}
		v.Exists = append(v.Exists, e.Key())
	}
	return v, nil
}

// restoreText returns a validator in the form of Fence.Restore.
func (v *validator) restoreText() (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode validator: %w", err)
	}
	return string(b), nil
}

func parseRestore(text string) (*validator, error) {
	if text == "" {
		return nil, nil
	}
	var v *validator
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("decode validator: %w", err)
	}
	return v, nil
}
