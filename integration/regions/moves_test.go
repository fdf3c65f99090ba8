package regions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/refusal"
)

// retried repeats a write until the service accepts it. Every refusal that a move causes may be repeated:
// a region that does not know yet that a record is its own, or has moved on, names another owner.
func (w *world) retried(write func() error) error {
	for {
		err := write()
		if err == nil || w.ctx.Err() != nil {
			return errors.Join(err, w.ctx.Err())
		}
		switch reason, _ := refusal.Of(err); reason {
		case refusal.Moving, refusal.NotOwner, refusal.RegionUnavailable, refusal.OutcomeUnknown, refusal.Stopping, refusal.NotReady:
		default:
			// A server that starts again has no port, and one that stops ends connections. Such an error
			// comes from no server, and its code may be any.
			if code := connect.CodeOf(err); connect.IsWireError(err) && code != connect.CodeUnavailable && code != connect.CodeAborted {
				return err
			}
		}
		pause(w.ctx, 20*time.Millisecond)
	}
}

// must is retried for the test itself.
func (w *world) must(what string, write func() error) {
	w.t.Helper()
	if err := w.retried(write); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// rehome asks a region to move a secret.
func (r *region) rehome(id, home string) error {
	_, err := r.v1.UpdateSecret(r.ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/" + id, Home: home}}))
	return err
}

// has returns the states of the moves of a secret in the data of a region: one for each record, "none" for
// no move.
func (r *region) has(version, id string) (states []string) {
	r.t.Helper()
	name := "projects/p/secrets/" + id
	if version == "v2" {
		name = "projects/p/regions/us-west2/secrets/" + id
	}
	names, err := r.dbs[version].ListCollectionNames(r.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^secrets\.n[0-9]+$`}}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, collection := range names {
		cursor, err := r.dbs[version].Collection(collection).Find(r.ctx, bson.D{{Key: "_id", Value: name}, {Key: "home", Value: bson.D{{Key: "$exists", Value: true}}}})
		if err != nil {
			r.t.Fatal(err)
		}
		var docs []bson.Raw
		if err := cursor.All(r.ctx, &docs); err != nil {
			r.t.Fatal(err)
		}
		for _, doc := range docs {
			state, _ := doc.Lookup("move").StringValueOK()
			if state, _, _ = strings.Cut(state, ":"); state == "" {
				state = "none"
			}
			states = append(states, state)
		}
	}
	return states
}

// until waits until the data of a region has a secret in one of these states, or not at all.
func (r *region) until(version, id string, states ...string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s is %s in %s", id, strings.Join(states, " or "), r.name), func() error {
		have := strings.Join(r.has(version, id), " and ")
		for _, want := range states {
			if have == want {
				return nil
			}
		}
		return fmt.Errorf("it is %q", have)
	})
}

// arrives waits until exactly one region owns a secret, and all show it as its own.
func (w *world) arrives(id, home, version string) {
	w.t.Helper()
	w.regions[home].until(version, id, "none", "arrived")
	for _, name := range names {
		r := w.regions[name]
		if name != home {
			r.until("v1", id, "")
		}
		w.eventually(name+" shows "+id+" as a secret of "+home, func() error {
			res, err := r.v1.GetSecret(r.ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/" + id}))
			if err != nil {
				return err
			}
			if got := res.Msg.GetSecret(); got.GetHome() != home {
				return fmt.Errorf("it shows %v", got)
			}
			return nil
		})
	}
}

// TestMoves: secrets move there and back, under writes in all regions, while servers stop in each step and
// a region upgrades and rolls back. No write is lost, no secret is missing in a read, and none is owned
// twice.
func TestMoves(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	w := start(ctx, t, "  forward: true\n")
	us, eu := w.regions["us"], w.regions["eu"]
	want := map[string]string{}
	ids := []string{"m0", "m1", "m2"}
	for _, id := range ids {
		if err := us.create(id, "first"); err != nil {
			t.Fatal(err)
		}
		want[id] = "us:first"
	}
	w.converge("at the start", want, names...)

	// A writer of each secret in another region each. Readers of both regions between which m0 moves miss
	// it never.
	working, stop := context.WithCancel(ctx)
	defer stop()
	var last sync.Map
	var group sync.WaitGroup
	for i, id := range ids {
		r := w.regions[names[i]]
		group.Go(func() {
			for n := 0; working.Err() == nil; n++ {
				payload := fmt.Sprint("write ", n)
				// The value is the same in each attempt, so an unknown outcome may be repeated.
				err := w.retried(func() error {
					_, err := r.update(id, payload)
					return err
				})
				if err != nil {
					t.Errorf("a write of %s: %v", id, err)
					return
				}
				last.Store(id, payload)
				pause(working, 10*time.Millisecond)
			}
		})
	}
	reading, read := context.WithCancel(working)
	for _, r := range []*region{us, eu} {
		group.Go(func() {
			for reading.Err() == nil {
				if _, err := r.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/m0"})); err != nil {
					t.Errorf("a read in %s: %v", r.name, err)
					return
				}
				pause(reading, time.Millisecond)
			}
		})
	}
	group.Go(func() {
		for working.Err() == nil {
			for name, r := range w.regions {
				if text, err := r.get(); err == nil && strings.Contains(text, "OWNED TWICE") {
					t.Errorf("%s reports %s", name, text)
					return
				}
			}
			pause(working, 50*time.Millisecond)
		}
	})

	// There and back, and on to a third region. Any region takes the request.
	for _, move := range []struct{ id, home string }{{"m0", "eu"}, {"m1", "eu"}, {"m0", "us"}, {"m1", "asia"}, {"m0", "eu"}, {"m1", "us"}, {"m0", "us"}} {
		w.must("a move of "+move.id, func() error { return eu.rehome(move.id, move.home) })
		w.arrives(move.id, move.home, "v1")
	}
	read()

	// The destination is away: the secret is frozen, and operators see why. The move can be cancelled.
	eu.stop()
	if err := us.rehome("m2", "eu"); err != nil {
		t.Fatal(err)
	}
	us.until("v1", "m2", "leaving")
	_, err := us.update("m2", "frozen")
	if reason, meta := refusal.Of(err); reason != refusal.Moving || meta[refusal.MetaRegion] != "eu" {
		t.Errorf("a write of a secret that leaves: %v", err)
	}
	us.eventually("operators see the move", func() error {
		text, err := us.get()
		if err == nil && !strings.Contains(text, "secrets to region eu: 1 since ") {
			err = errors.New(text)
		}
		return err
	})
	w.must("a cancel", func() error { return us.rehome("m2", "us") })
	us.until("v1", "m2", "none")
	if err := us.rehome("m2", "eu"); err != nil {
		t.Fatal(err)
	}
	// Each server stops in each step, as far as it gets there before.
	restart := func(r *region) {
		r.stop()
		r.start(w.running)
		r.serves()
	}
	eu.start(w.running)
	eu.until("v1", "m2", "arriving", "arrived")
	restart(eu)
	us.until("v1", "m2", "left", "")
	restart(us)
	w.arrives("m2", "eu", "v1")

	// One region upgrades while a secret comes, and a secret of the new version waits for the others.
	if err := eu.command(ctx, "begin-upgrade", "deployment", "--target-version", "v2", "--server", eu.control); err != nil {
		t.Fatal(err)
	}
	w.must("a move into an upgrade", func() error { return us.rehome("m0", "eu") })
	served := func(version string) {
		t.Helper()
		eu.eventually("eu is on "+version, func() error {
			res, err := eu.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{PageSize: 1}))
			if err == nil && res.Header().Get("Dbcontroller-Version") != version {
				err = fmt.Errorf("served by %s", res.Header().Get("Dbcontroller-Version"))
			}
			return err
		})
	}
	served("v2")
	w.arrives("m0", "eu", "v2")
	w.must("a move to an older version", func() error { return eu.rehome("m2", "us") })
	us.eventually("the older version waits", func() error {
		text, err := us.get()
		if err == nil && !strings.Contains(text, "waits until this region is on v2") {
			err = errors.New(text)
		}
		return err
	})
	if err := eu.command(ctx, "rollback", "--server", eu.control); err != nil {
		t.Fatal(err)
	}
	served("v1")
	// The move goes through the rollback. It is cancelled and begins again in the form of v1.
	eu.until("v1", "m2", "leaving")
	w.must("a cancel after the rollback", func() error { return eu.rehome("m2", "eu") })
	w.must("a move after the rollback", func() error { return eu.rehome("m2", "us") })
	w.arrives("m2", "us", "v1")
	w.arrives("m0", "eu", "v1")

	stop()
	group.Wait()
	for id, home := range map[string]string{"m0": "eu", "m1": "us", "m2": "us"} {
		payload, _ := last.Load(id)
		want[id] = fmt.Sprint(home, ":", payload)
	}
	w.converge("at the end", want, names...)
	for _, name := range names {
		w.eventually("no move is left in "+name, func() error {
			text, err := w.regions[name].get()
			if err == nil && strings.Contains(text, "moves ") {
				err = errors.New(text)
			}
			return err
		})
	}
	t.Logf("ends with %v", want)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
