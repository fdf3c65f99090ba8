package appclient_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/appclient"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// versions collects where a callback was run.
type versions []string

func (v *versions) run(_ context.Context, at appclient.Place) error {
	*v = append(*v, at.Version)
	return nil
}

func TestHoldsFinishesAcknowledgesAndFollows(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	app := open(t, startController(t, d))
	ctx := t.Context()
	began, finish, done := make(chan struct{}), make(chan struct{}), make(chan string, 2)
	write := func(during func()) {
		var version string
		err := app.Write(ctx, func(_ context.Context, at appclient.Place) error {
			during()
			c, err := at.Collection(kind)
			if err == nil && c.Database().Name() != "dbc_"+at.Version {
				t.Errorf("%s is in %s", at.Version, c.Database().Name())
			}
			version = at.Version
			return err
		})
		if err != nil {
			t.Error(err)
		}
		done <- version
	}
	go write(func() { close(began); <-finish })
	<-began
	d.set(hold("v1", 2, 5))
	select {
	case <-d.acks:
		t.Fatal("it says that it holds while a write is in flight")
	case <-time.After(300 * time.Millisecond):
	}
	close(finish)
	if v := <-done; v != "v1" {
		t.Errorf("the write in flight went to %s", v)
	}
	if attempt := <-d.acks; attempt != 5 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	go write(func() {})
	select {
	case v := <-done:
		t.Fatalf("a write went to %s while writes are held", v)
	case <-time.After(50 * time.Millisecond):
	}
	d.set(at("v2", 3))
	if v := <-done; v != "v2" {
		t.Errorf("the held write went to %s", v)
	}
	if len(d.acks) > 0 {
		t.Error("it is acknowledged twice")
	}
}

// TestReadsWhereItWasOpen: a location that holds may name the version that comes.
func TestReadsWhereItWasOpen(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	app := open(t, startController(t, d))
	var seen versions
	for i, loc := range []*pb.Location{hold("v1", 2, 1), hold("v2", 3, 1), at("v2", 4)} {
		d.set(loc)
		if i == 0 {
			<-d.acks // it has heard of it
		} else {
			eventually(t, "the news", func() bool { return app.Revision() == loc.GetRevision() })
		}
		if err := app.Read(t.Context(), seen.run); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(seen, " "); got != "v1 v1 v2" {
		t.Errorf("reads went to %s", got)
	}
}

// TestOpenedDuringASwitch: nobody knows yet where reads find something.
func TestOpenedDuringASwitch(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	d.set(hold("v2", 2, 1))
	app := open(t, startController(t, d))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var seen versions
	if err := app.Read(short, seen.run); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read: %v", err)
	}
	if err := app.Write(short, seen.run); !errors.Is(err, appclient.ErrNotWritten) {
		t.Errorf("a write: %v", err)
	}
	d.set(at("v2", 3))
	if err := app.Read(t.Context(), seen.run); err != nil || strings.Join(seen, " ") != "v2" {
		t.Errorf("%v: reads went to %v", err, seen)
	}
}

// TestRefusedIsRunAgainWhereTheDataIs, for the codes of all fences, and never where nothing moved.
func TestRefusedIsRunAgainWhereTheDataIs(t *testing.T) {
	t.Parallel()
	refusal := func(code int) error {
		return mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: code}}}
	}
	for _, tc := range []struct {
		name string
		err  error
		many bool   // the operation was of many documents, or is not known
		runs string // where it was run, when the data moves
		want error  // when it does not; nil: the same error
		at   error  // when it does
	}{
		{name: "validator", err: refusal(121), runs: "v1 v2"},
		{name: "view", err: refusal(166), runs: "v1 v2"},
		{name: "identity", err: mongo.CommandError{Code: 361}, runs: "v1 v2"},
		{name: "block", err: mongo.CommandError{Code: 371}, runs: "v1 v2"},
		{name: "not there", err: appclient.ErrMoved, runs: "v1 v2"},
		{name: "bulk at its first", err: mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 166}}}}, runs: "v1 v2"},
		{
			name: "bulk at its third", many: true, err: mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Index: 2, Code: 166}}}},
			runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome,
		},
		{
			name: "bulk at its first, by a fence that others pass", many: true, err: mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 121}}}},
			runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome,
		},
		{name: "many by a validator", many: true, err: refusal(121), runs: "v1", at: appclient.ErrUnknownOutcome},
		{name: "many by a view", many: true, err: refusal(166), runs: "v1", at: appclient.ErrUnknownOutcome},
		{name: "many by identity", many: true, err: mongo.CommandError{Code: 361}, runs: "v1", at: appclient.ErrUnknownOutcome},
		{name: "many by a block", many: true, err: refusal(371), runs: "v1", at: appclient.ErrUnknownOutcome},
		{name: "bulk over several collections", err: mongo.ClientBulkWriteException{}, runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome},
		{
			name: "transaction of unknown outcome", err: mongo.CommandError{Code: 166, Labels: []string{"UnknownTransactionCommitResult"}},
			runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome,
		},
		{name: "broken off", err: mongo.CommandError{Labels: []string{"NetworkError"}}, runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome},
		{name: "canceled", err: context.Canceled, runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome},
		{name: "by a majority, maybe", err: mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}}, runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome},
		{name: "killed in the middle", err: mongo.CommandError{Code: 175}, runs: "v1", want: appclient.ErrUnknownOutcome, at: appclient.ErrUnknownOutcome},
		{name: "another error", err: refusal(11000), runs: "v1", at: refusal(11000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, moves := range []bool{true, false} {
				d := newDeployment()
				app := open(t, startController(t, d))
				var seen versions
				err := app.Write(t.Context(), func(ctx context.Context, place appclient.Place) error {
					_ = seen.run(ctx, place)
					if place.Version != "v1" {
						return nil
					}
					if moves {
						d.set(at("v2", 2))
					}
					if tc.many {
						return tc.err
					}
					return appclient.OfOne(place, tc.err)
				})
				runs, want := tc.runs, tc.at
				if !moves {
					if runs, want = "v1", tc.want; want == nil {
						want = tc.err
					}
				}
				if got := strings.Join(seen, " "); got != runs {
					t.Errorf("moves %t: it is run at %s, want %s", moves, got, runs)
				}
				if same := err == nil && want == nil || err != nil && want != nil && (errors.Is(err, want) || err.Error() == want.Error()); !same {
					t.Errorf("moves %t: %v, want %v", moves, err, want)
				}
			}
		})
	}
}

// TestEndedTransactionIsRunAgain, without any news.
func TestEndedTransactionIsRunAgain(t *testing.T) {
	t.Parallel()
	app := open(t, startController(t, newDeployment()))
	runs := 0
	err := app.Write(t.Context(), func(context.Context, appclient.Place) error {
		if runs++; runs < 3 {
			return mongo.CommandError{Code: 251, Labels: []string{"TransientTransactionError"}}
		}
		return nil
	})
	if err != nil || runs != 3 {
		t.Errorf("%v after %d runs", err, runs)
	}
}

// TestReadIsRunAgainWhereTheDataIs: a version that was completed answers with an error.
func TestReadIsRunAgainWhereTheDataIs(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{true, false} {
		d := newDeployment()
		app := open(t, startController(t, d))
		var seen versions
		retired := mongo.CommandError{Code: 241}
		err := app.Read(t.Context(), func(ctx context.Context, place appclient.Place) error {
			_ = seen.run(ctx, place)
			if place.Version != "v1" {
				return nil
			}
			if moves {
				d.set(at("v2", 2))
			}
			return retired
		})
		if got := strings.Join(seen, " "); moves && (err != nil || got != "v1 v2") || !moves && (err == nil || got != "v1") {
			t.Errorf("moves %t: %v, run at %s", moves, err, got)
		}
	}
}

func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	app := open(t, startController(t, d))
	elsewhere := at("v1@b", 2)
	elsewhere.Cluster, elsewhere.Hosts = "two", "db2.example.com:27017"
	d.set(elsewhere)
	eventually(t, "the news", func() bool { return app.Revision() == 2 })
	var seen versions
	err := app.Read(t.Context(), seen.run)
	if err == nil || !strings.Contains(err.Error(), "another cluster (db2.example.com:27017): give MongoAt") || len(seen) > 0 {
		t.Errorf("%v; reads went to %v", err, seen)
	}
}

func TestUnknownKind(t *testing.T) {
	t.Parallel()
	app := open(t, startController(t, newDeployment()))
	err := app.Read(t.Context(), func(_ context.Context, at appclient.Place) error {
		_, err := at.Collection("orders")
		return err
	})
	if err == nil || err.Error() != `version v1 has no kind "orders", only packages` {
		t.Error(err)
	}
}

// TestLatest: the answer of the controllers is not older than the call, whatever this process has noticed.
func TestLatest(t *testing.T) {
	t.Parallel()
	d := newDeployment()
	app := open(t, startController(t, d))
	for revision, state := range []pb.Location_State{pb.Location_OPEN, pb.Location_HOLD, pb.Location_OPEN} {
		loc := at("v1", int64(revision)+2)
		loc.State, loc.Epoch = state, int64(revision)+1
		loc.Kinds[0].Fence = "view"
		d.set(loc)
		epoch, open, err := app.Latest(t.Context())
		if err != nil || epoch != loc.GetEpoch() || open != (state == pb.Location_OPEN) {
			t.Errorf("%d %v %v, want %v", epoch, open, err, loc)
		}
	}
	if err := app.Write(t.Context(), func(_ context.Context, at appclient.Place) error {
		if at.Epoch != 3 || at.Fence(kind) != "view" || at.Fence("none") != "" {
			t.Errorf("%+v", at)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
