package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// ways are how an application replaces its collection as a whole. Each is a kind of its own, so
// that all of them meet each phase of one deployment. A way returns what the collection holds.
var ways = map[string]func(r *replacing, k string) map[string]int{
	"swapped": func(r *replacing, k string) map[string]int {
		next := r.fresh(k)
		r.insert(k+"_new", next)
		r.rename(k, fmt.Sprintf("%s_old%d", k, r.round))
		r.rename(k+"_new", k)
		return next
	},
	"dropped": func(r *replacing, k string) map[string]int {
		next := r.fresh(k)
		r.ok(r.db().Collection(k).Drop(r.ctx))
		r.insert(k, next)
		return next
	},
	"output": func(r *replacing, k string) map[string]int {
		next := r.fresh(k)
		from := fmt.Sprintf("%s_from%d", k, r.round)
		r.insert(from, next)
		cursor, err := r.db().Collection(from).Aggregate(r.ctx, mongo.Pipeline{{{Key: "$out", Value: k}}})
		if fenced(err) { // it has the validator of the collection that it would replace
			return r.has[k]
		}
		r.ok(err)
		r.ok(cursor.Close(r.ctx))
		return next
	},
	// As mongorestore --drop --bypassDocumentValidation does: it drops the collection, creates it with
	// the options and the index of _id that the dump has, inserts batches of documents without regard
	// to their order, and builds all other indexes afterwards.
	"restored": func(r *replacing, k string) map[string]int {
		same := maps.Clone(r.has[k])
		ns := r.db().Name() + "." + k
		r.ok(r.db().Collection(k).Drop(r.ctx))
		r.ok(r.db().RunCommand(r.ctx, bson.D{
			{Key: "create", Value: k},
			{Key: "changeStreamPreAndPostImages", Value: bson.D{{Key: "enabled", Value: true}}},
			{Key: "idIndex", Value: bson.D{{Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "name", Value: "_id_"}, {Key: "ns", Value: ns}}},
		}).Err())
		for batch := range slices.Chunk(slices.Sorted(maps.Keys(same)), 40) {
			docs := bson.A{}
			for _, id := range batch {
				docs = append(docs, r.document(id, same[id]))
			}
			r.ok(r.db().RunCommand(r.ctx, bson.D{
				{Key: "insert", Value: k}, {Key: "documents", Value: docs},
				{Key: "ordered", Value: false}, {Key: "bypassDocumentValidation", Value: true},
			}).Err())
		}
		r.ok(r.db().RunCommand(r.ctx, bson.D{
			{Key: "createIndexes", Value: k},
			{Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: "n_1"}, {Key: "ns", Value: ns}}}},
			{Key: "ignoreUnknownIndexOptions", Value: true},
		}).Err())
		return same
	},
	// As mongorestore --drop --preserveUUID does: another content has the identity of the former one.
	"preserved": func(r *replacing, k string) map[string]int {
		if r.switching { // the server would give the fenced collection of this identity its name back
			return r.has[k]
		}
		next := r.fresh(k)
		specs, err := r.db().ListCollectionSpecifications(r.ctx, bson.D{{Key: "name", Value: k}})
		r.ok(err)
		r.ok(r.db().Collection(k).Drop(r.ctx))
		r.ok(r.db().Client().Database("admin").RunCommand(r.ctx, bson.D{{Key: "applyOps", Value: bson.A{bson.D{
			{Key: "op", Value: "c"}, {Key: "ns", Value: r.db().Name() + ".$cmd"}, {Key: "ui", Value: specs[0].UUID},
			{Key: "o", Value: bson.D{{Key: "create", Value: k}, {Key: "idIndex", Value: bson.D{
				{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "name", Value: "_id_"},
			}}}},
		}}}}).Err())
		r.insert(k, next)
		return next
	},
	"away": func(r *replacing, k string) map[string]int {
		next := maps.Clone(r.has[k])
		r.rename(k, k+"_away")
		for id := range next { // under a name that nobody follows
			delete(next, id)
			_, err := r.db().Collection(k+"_away").DeleteOne(r.ctx, bson.D{{Key: "_id", Value: id}})
			r.ok(err)
			break
		}
		id := fmt.Sprintf("away%d", r.round)
		_, err := r.db().Collection(k+"_away").InsertOne(r.ctx, r.document(id, r.round))
		if !fenced(err) { // by a validator, which it takes along
			r.ok(err)
			next[id] = r.round
		}
		r.rename(k+"_away", k)
		return next
	},
}

// replacing is an application with a collection for each way, which writes all the time and
// remembers what was acknowledged.
type replacing struct {
	*system
	ctx context.Context

	mu        sync.Mutex // held while collections are replaced or compared
	version   string
	round     int
	switching bool                      // collections are fenced
	keeps     bool                      // nothing is deleted
	has       map[string]map[string]int // by kind and _id
	acks      int
}

func (r *replacing) db() *mongo.Database { return r.system.db[r.version] }

func (r *replacing) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *replacing) document(id string, n int) bson.D {
	if r.version == "v1" {
		return bson.D{{Key: "_id", Value: id}, {Key: "n", Value: n}, {Key: "section", Value: "x"}}
	}
	return bson.D{{Key: "_id", Value: id}, {Key: "n", Value: n}, {Key: "category", Value: "x"}, {Key: "schema", Value: 2}}
}

func (r *replacing) insert(collection string, docs map[string]int) {
	r.t.Helper()
	var all []any
	for id, n := range docs {
		all = append(all, r.document(id, n))
	}
	_, err := r.db().Collection(collection).InsertMany(r.ctx, all)
	r.ok(err)
}

func (r *replacing) rename(from, to string) {
	r.t.Helper()
	name := r.db().Name()
	r.ok(r.db().Client().Database("admin").RunCommand(r.ctx, bson.D{{Key: "renameCollection", Value: name + "." + from}, {Key: "to", Value: name + "." + to}}).Err())
}

// fresh is another content: some documents go, some change, some come.
func (r *replacing) fresh(k string) map[string]int {
	next := map[string]int{}
	for id, n := range r.has[k] {
		switch len(next) % 3 {
		case 0:
			next[id] = n
		case 1:
			next[id] = n + 1000
		}
		if rand.IntN(3) == 0 {
			delete(next, id)
		}
	}
	for i := range 20 {
		next[fmt.Sprintf("fresh%d-%02d", r.round, i)] = i
	}
	return next
}

// write makes one write to each kind. Nothing but what was acknowledged counts; a fence refuses.
func (r *replacing) write(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, has := range r.has {
		c := r.db().Collection(k)
		var err error
		var missing bool
		id := fmt.Sprintf("w%d", i)
		for known := range has {
			if i%3 > 0 {
				id = known
			}
			break
		}
		switch {
		case i%3 == 0:
			_, err = c.InsertOne(r.ctx, r.document(id, i))
		case i%3 == 1 || r.keeps:
			var did *mongo.UpdateResult
			did, err = c.UpdateByID(r.ctx, id, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: i}}}})
			missing = err == nil && did.MatchedCount == 0
		default:
			var did *mongo.DeleteResult
			did, err = c.DeleteOne(r.ctx, bson.D{{Key: "_id", Value: id}})
			missing = err == nil && did.DeletedCount == 0
		}
		switch {
		// An insert has just made a collection under the name of a kind whose fence is half set. The
		// comparisons show whether the document is there.
		case missing:
			continue
		case fenced(err), r.ctx.Err() != nil:
			continue
		case err != nil:
			r.t.Errorf("write to %s: %v", k, err)
			continue
		case i%3 == 2 && !r.keeps:
			delete(has, id)
		default:
			has[id] = i
		}
		r.acks++
	}
}

// writes has clients write until stop is called.
func (r *replacing) writes() (stop func()) {
	var writing sync.WaitGroup
	stopped := make(chan struct{})
	writing.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stopped:
				return
			case <-time.After(40 * time.Millisecond): // clients think
				r.write(i)
			}
		}
	})
	return func() {
		close(stopped)
		writing.Wait()
	}
}

// fenced reports that a fence has refused a write.
func fenced(err error) bool {
	var refused mongo.ServerError
	return errors.As(err, &refused) && (refused.HasErrorCode(121) || refused.HasErrorCode(166))
}

// replace replaces all collections, each in its way.
func (r *replacing) replace(phase string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	r.switching = phase == "during the switch"
	for k, way := range ways {
		r.has[k] = way(r, k)
	}
	r.t.Logf("%s: replaced %d collections after %d acknowledged writes", phase, len(ways), r.acks)
}

// follow waits until both versions hold what the application has, and nothing else, and the
// history names each replacement of a kind.
func (r *replacing) follow(phase string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Now()
	eventually(r.ctx, r.t, phase+": both versions have what was acknowledged", func() error {
		d, err := r.record.Get(r.ctx)
		if err != nil {
			return err
		}
		for k, has := range r.has {
			for version, field := range map[string]string{"v1": "section", "v2": "category"} {
				ns, _ := d.Namespace(version)
				at, _ := ns.Kind(k)
				cursor, err := r.system.db[version].Collection(at.Physical).Find(r.ctx, bson.D{})
				if err != nil {
					return err
				}
				var docs []struct {
					ID     string `bson:"_id"`
					N      int    `bson:"n"`
					Fields bson.M `bson:",inline"`
				}
				if err := cursor.All(r.ctx, &docs); err != nil {
					return err
				}
				got := map[string]int{}
				for _, doc := range docs {
					if got[doc.ID] = doc.N; doc.Fields[field] != "x" {
						return fmt.Errorf("%s of %s is of another version: %v", doc.ID, version, doc.Fields)
					}
				}
				lost, foreign := 0, 0
				for id, n := range has {
					if is, ok := got[id]; !ok || is != n {
						lost++
					}
				}
				for id := range got {
					if _, ok := has[id]; !ok {
						foreign++
					}
				}
				if lost+foreign > 0 {
					return fmt.Errorf("%s in %s: %d of %d lost or wrong, %d that are not the application's", k, version, lost, len(has), foreign)
				}
			}
		}
		return nil
	})
	r.t.Logf("%s: followed after %v", phase, time.Since(since).Round(time.Millisecond))
}
