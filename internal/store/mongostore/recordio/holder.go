package recordio

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/record"
)

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
	filter, collation := holderFilter(r.answer)
	if kind == "" || filter == nil {
		return r.err
	}
	// Enough to find another record beside the group's own.
	find := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetLimit(2 + int64(len(j.groups[r.group].Writes)))
	if collation != nil {
		find.SetCollation(collation)
	}
	cursor, err := n.DB.Collection(r.coll).Find(ctx, filter, find)
	if err != nil {
		return r.err
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return r.err
	}
	for _, doc := range found {
		key, err := record.KeyOfDoc(doc)
		// A record of the group itself does not stand in the group's way.
		own := slices.ContainsFunc(j.groups[r.group].Writes, func(w record.Write) bool { return w.Kind == kind && w.Key == key })
		if err == nil && !own {
			return &record.HeldError{Kind: kind, Holder: key, Err: r.err}
		}
	}
	return r.err
}

// holderFilter selects the records with the values that the index found twice. For an index with a
// collation, the server's answer has comparison keys instead of values, so there is no filter.
func holderFilter(answer bson.Raw) (bson.D, *options.Collation) {
	if _, err := answer.LookupErr("collation"); err == nil {
		return nil, nil
	}
	values, ok := answer.Lookup("keyValue").DocumentOK()
	if !ok {
		return nil, nil
	}
	elems, err := values.Elements()
	if err != nil || len(elems) == 0 {
		return nil, nil
	}
	var filter bson.D
	for _, e := range elems {
		// $eq, because a value may be a document that looks like an operator.
		filter = append(filter, bson.E{Key: e.Key(), Value: bson.D{{Key: "$eq", Value: e.Value()}}})
	}
	return filter, nil
}
