package recordio

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

const (
	// holderWait bounds one search for a holder in milliseconds. The search uses the index that
	// refused the value, so only an overloaded server reaches it.
	holderWait = 5000
	// maxFailures bounds the failed searches of one batch in an index.
	maxFailures = 2
	// maxHolders bounds the records of one search. A unique index has one record for a value.
	maxHolders = 4
)

// holders caches the searches of one batch. Hundreds of groups can be refused for one value, each of
// them several times.
type holders struct {
	indexes map[string][]conn.ListedIndex // by collection
	found   map[string][]record.Key       // by collection, index and value
	failed  map[string]int                // searches, by collection and index
}

// holder adds the record that holds the value to the refusal by a unique index. The caller may have
// to write the two records together. If the holder cannot be found, the error stays as it is. The
// holder may be in the same transaction, or gone.
func (n *Records) holder(ctx context.Context, j *job, r *refusal) error {
	if !r.conflict {
		return r.err
	}
	kind := ""
	for name, t := range j.targets {
		if t.Coll == r.coll {
			kind = name
		}
	}
	if kind == "" {
		return r.err
	}
	for _, key := range n.holdersOf(ctx, &j.holders, r) {
		// A record of the group itself does not stand in the group's way.
		own := slices.ContainsFunc(j.groups[r.group].Writes, func(w record.Write) bool { return w.Kind == kind && w.Key == key })
		if !own {
			return &record.HeldError{Kind: kind, Holder: key, Err: r.err}
		}
	}
	return r.err
}

// holdersOf returns the records with the refused value, as the index has them.
func (n *Records) holdersOf(ctx context.Context, seen *holders, r *refusal) []record.Key {
	message, _ := r.answer.Lookup("errmsg").StringValueOK()
	index := conn.DuplicateOf(r.answer, message).Index
	place := r.coll + "\x00" + index
	// A search may take its whole time, but not one for each of many values.
	if seen.failed[place] >= maxFailures {
		return nil
	}
	values, _ := r.answer.Lookup("keyValue").DocumentOK()
	at := place + "\x00" + string(values)
	if found, ok := seen.found[at]; ok {
		return found
	}
	if seen.found == nil {
		*seen = holders{indexes: map[string][]conn.ListedIndex{}, found: map[string][]record.Key{}, failed: map[string]int{}}
	}
	listed, ok := seen.indexes[r.coll]
	if !ok {
		// Without the list, every answer of this batch stays as it is.
		listed, _ = n.Indexed.Ask(ctx, r.coll)
		seen.indexes[r.coll] = listed
	}
	var keys []record.Key
	if filter := holderFilter(r.answer, listed, index); filter != nil {
		var err error
		if keys, err = n.findHolders(ctx, r.coll, index, filter); err != nil {
			seen.failed[place]++
			return nil
		}
	}
	seen.found[at] = keys
	return keys
}

// findHolders reads the keys that an index has for a filter. Without the index the server would read
// the whole collection.
func (n *Records) findHolders(ctx context.Context, coll, index string, filter bson.A) ([]record.Key, error) {
	// Hide the deadline: the driver would add a maxTimeMS of its own for it.
	timeless, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	cursor, err := n.DB.RunCommandCursor(timeless, bson.D{
		{Key: "find", Value: coll},
		{Key: "filter", Value: bson.D{{Key: "$and", Value: filter}}},
		{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "hint", Value: index},
		{Key: "limit", Value: maxHolders},
		{Key: "singleBatch", Value: true},
		{Key: "maxTimeMS", Value: holderWait},
		{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
	})
	if err != nil {
		return nil, err
	}
	var found []bson.Raw
	if err := conn.All(timeless, cursor, &found); err != nil {
		return nil, err
	}
	keys := make([]record.Key, 0, len(found))
	for _, doc := range found {
		if key, err := record.KeyOfDoc(doc); err == nil {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// holderFilter selects the records that an index has with the values that it found twice. nil means
// that no search can use the index. For an index with a collation, the server's answer has comparison
// keys instead of values. The server uses no hidden index.
func holderFilter(answer bson.Raw, listed []conn.ListedIndex, index string) bson.A {
	if _, err := answer.LookupErr("collation"); err == nil {
		return nil
	}
	at := slices.IndexFunc(listed, func(ix conn.ListedIndex) bool { return ix.Name == index })
	if at < 0 {
		return nil
	}
	spec := listed[at].Spec
	if hidden, _ := spec.Lookup("hidden").BooleanOK(); hidden || listed[at].Building {
		return nil
	}
	values, ok := answer.Lookup("keyValue").DocumentOK()
	if !ok {
		return nil
	}
	elems, err := values.Elements()
	if err != nil || len(elems) == 0 {
		return nil
	}
	var filter bson.A
	for _, e := range elems {
		// $eq, because a value may be a document that looks like an operator.
		filter = append(filter, bson.D{{Key: e.Key(), Value: bson.D{{Key: "$eq", Value: e.Value()}}}})
	}
	// Records outside a partial index may have the value too, and the server uses the index only with
	// its own condition.
	if partial, ok := spec.Lookup("partialFilterExpression").DocumentOK(); ok {
		filter = append(filter, partial)
	}
	return filter
}
