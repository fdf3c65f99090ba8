package fences

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// identified is a collection by name and UUID.
type identified struct {
	Name string
	UUID bson.Binary
}

// provenAtOnce bounds the names that one command proves.
const provenAtOnce = 100

// absent returns a filter that matches no document, and an update for it. The update changes
// nothing, but its majority acknowledgement covers everything before it.
func absent() (filter, update bson.D) {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "dbc", Value: bson.NewObjectID()}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "dbc", Value: 1}}}}
}

// proof asks for the mark of a fence, and for the proof that its collection has the name To.
type proof struct {
	identified
	fence record.Fence
}

// proved are the results of several proofs.
type proved struct {
	failed   map[string]error // by name; a missing or nil entry is a success
	together bool             // one command wrote the marks and proved the names
}

// prove writes the mark of a fence and proves that the UUID has the name To. together means that one
// command did both. Without it the proof comes after the mark, too, but maybe from another server.
func (n *Fences) prove(ctx context.Context, f record.Fence, uuid bson.Binary) (together bool, err error) {
	n.Pulse.Quicken() // as Mark does
	all, err := n.proofs.Ask(ctx, proof{identified{f.To, uuid}, f})
	if err != nil {
		return false, err
	}
	return all.together, all.failed[f.To]
}

// proveAll writes the marks of several fences, and proves the names. One bulkWrite of MongoDB 8.0 does
// both in this order. Its majority acknowledgement covers the marks, which are real writes, and
// everything before them.
func (n *Fences) proveAll(ctx context.Context, ps []proof) (proved, error) {
	cs := make([]identified, len(ps))
	for i, p := range ps {
		cs[i] = p.identified
	}
	router, err := n.IsMongos(ctx)
	if err != nil {
		return proved{}, err
	}
	// A router may send the operations to several shards at the same time.
	if !router && !n.noBulkWrite.Load() {
		by, err := n.markAndProve(ctx, ps, cs)
		if !conn.HasCode(err, conn.CodeCommandNotFound, conn.CodeCommandNotSupported, conn.CodeAPIStrict) {
			return proved{by, true}, err
		}
		n.noBulkWrite.Store(true) // a server older than MongoDB 8.0
	}
	failed := byName(ps, func(p proof) string { return p.Name }, func(p proof) error { return n.Mark(ctx, p.fence) })
	unmarked := maps.Clone(failed)
	// Prove only behind a mark: an unmarked fence is not confirmed.
	cs = slices.DeleteFunc(cs, func(c identified) bool { return failed[c.Name] != nil })
	if len(cs) > 0 {
		if failed, err = n.proveNames(ctx, cs); err != nil {
			return proved{}, err
		}
	}
	for name, err := range unmarked {
		if err != nil {
			failed[name] = err
		}
	}
	return proved{failed: failed}, nil
}

// markAndProve writes the marks and then proves the names, with one command.
func (n *Fences) markAndProve(ctx context.Context, ps []proof, cs []identified) (map[string]error, error) {
	ops := make(bson.A, 0, 2*len(ps))
	for _, p := range ps {
		id, update := conn.MarkOf(p.fence)
		ops = append(ops, bson.D{
			{Key: "update", Value: int32(len(cs))}, {Key: "filter", Value: bson.D{{Key: "_id", Value: id}}}, //nolint:gosec // hundreds
			{Key: "updateMods", Value: update}, {Key: "upsert", Value: true},
		})
	}
	names := namesOf(n.Name, cs)
	failed, err := n.bulkWrite(ctx, append(ops, provingOps(cs)...), append(names, bson.D{{Key: "ns", Value: n.Name + "." + conn.MarksCollection}}))
	if err != nil {
		return nil, err
	}
	// A failed mark and a failed proof are failures of the same name.
	for i := range failed {
		if failed[i].At >= len(cs) {
			failed[i].At -= len(cs)
		}
	}
	return failuresOf(cs, failed)
}

// proveNames checks that collections have their names in every history that can still be
// acknowledged. It returns the error of each collection that does not; a missing or nil entry means
// that it has its name.
func (n *Fences) proveNames(ctx context.Context, cs []identified) (map[string]error, error) {
	if len(cs) > 1 {
		router, err := n.IsMongos(ctx)
		if err != nil {
			return nil, err
		}
		if !router {
			by, err := n.proveTogether(ctx, cs)
			if !conn.HasCode(err, conn.CodeCommandNotFound) { // server older than MongoDB 8.0
				return by, err
			}
		}
	}
	return n.proveEach(ctx, cs), nil
}

// proveEach proves several names with one command each.
func (n *Fences) proveEach(ctx context.Context, cs []identified) map[string]error {
	return byName(cs, func(c identified) string { return c.Name }, func(c identified) error { return n.proveName(ctx, c) })
}

func (n *Fences) proveName(ctx context.Context, c identified) error {
	filter, update := absent()
	return n.DB.RunCommand(ctx, bson.D{
		{Key: "update", Value: c.Name},
		{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}}}},
		{Key: "collectionUUID", Value: c.UUID},
		{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)},
	}).Err()
}

// proveTogether proves several names with one command.
func (n *Fences) proveTogether(ctx context.Context, cs []identified) (map[string]error, error) {
	failed, err := n.bulkWrite(ctx, provingOps(cs), namesOf(n.Name, cs))
	if err != nil {
		return nil, err
	}
	return failuresOf(cs, failed)
}

// provingOps returns an update for each collection that changes nothing. They match nothing, so one
// filter serves them all.
func provingOps(cs []identified) bson.A {
	ops := make(bson.A, len(cs))
	filter, update := absent()
	for i := range cs {
		ops[i] = bson.D{{Key: "update", Value: int32(i)}, {Key: "filter", Value: filter}, {Key: "updateMods", Value: update}} //nolint:gosec // hundreds
	}
	return ops
}

// namesOf returns the nsInfo for collections, with their UUIDs.
func namesOf(database string, cs []identified) bson.A {
	names := make(bson.A, len(cs))
	for i, c := range cs {
		names[i] = bson.D{{Key: "ns", Value: database + "." + c.Name}, {Key: "collectionUUID", Value: c.UUID}}
	}
	return names
}

// bulkWrite sends operations in one command and returns the failed ones. It waits for a majority.
func (n *Fences) bulkWrite(ctx context.Context, ops, names bson.A) ([]failedOp, error) {
	var reply struct {
		Failed struct {
			First []failedOp `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	// Unordered, so that one lost name does not hide the others.
	err := conn.Decode(n.Admin().RunCommand(ctx, bson.D{
		{Key: "bulkWrite", Value: 1}, {Key: "ops", Value: ops}, {Key: "nsInfo", Value: names},
		{Key: "ordered", Value: false}, {Key: "errorsOnly", Value: true},
		{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)},
	}), &reply)
	return reply.Failed.First, err
}

// failedOp is the server's report of an operation of a bulkWrite that failed.
type failedOp struct {
	At      int    `bson:"idx"`
	Code    int32  `bson:"code"`
	Message string `bson:"errmsg"`
}

// failuresOf returns the errors of operations by the names of their collections. The reply lists
// failures only; a missing entry is a success.
func failuresOf(cs []identified, failed []failedOp) (map[string]error, error) {
	by := make(map[string]error, len(cs))
	for _, f := range failed {
		// An index that we did not send leaves all outcomes unknown.
		if f.At < 0 || f.At >= len(cs) {
			return nil, fmt.Errorf("the server reports a failure of operation %d of %d", f.At, len(cs))
		}
		by[cs[f.At].Name] = mongo.CommandError{Code: f.Code, Message: f.Message}
	}
	return by, nil
}
