package mongostore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestLagOfMembers on a set that was idle: a write that has only just been made is no lag,
// and the same write is one when its secondaries still lack it seconds later.
func TestLagOfMembers(t *testing.T) {
	t.Parallel()
	r := storetest.NewReplicas(t)
	p := r.Primary(t, -1)
	ns := r.Direct[p]
	// await asks until ok, and returns the last answer.
	await := func(what string, ok func(record.Health) bool) (h record.Health) {
		t.Helper()
		err := backoff.Retry(func() (err error) {
			if h, err = ns.Health(t.Context()); err == nil && !ok(h) {
				err = errors.New(what)
			}
			return err
		}, backoff.WithContext(backoff.NewConstantBackOff(50*time.Millisecond), t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	quiet := 3 * time.Second
	await("an idle set shows a lag, or is never idle", func(h record.Health) bool {
		if h.Lag > quiet { // on a busy machine also one that really is behind
			return false
		}
		raw, err := ns.Measure(t.Context(), bson.D{{Key: "replSetGetStatus", Value: 1}})
		if err != nil {
			t.Fatal(err)
		}
		last, _ := raw.Lookup("optimes", "lastAppliedWallTime").TimeOK()
		now, _ := raw.Lookup("date").TimeOK()
		return now.Sub(last) > quiet
	})
	r.Replication(t, p, false)
	start := time.Now()
	if err := ns.AppendNote(t.Context(), "a write", bson.D{{Key: "w", Value: 1}}).Err(); err != nil {
		t.Fatal(err)
	}
	h, err := ns.Health(t.Context())
	if took := time.Since(start); err != nil || h.Lag > took+100*time.Millisecond {
		t.Errorf("%s after the first write of an idle set its lag is %s, %v", took, h.Lag, err)
	}
	h = await("secondaries that stand still are not seen", func(h record.Health) bool { return h.Lag > quiet })
	if took := time.Since(start); h.Lag > took+100*time.Millisecond {
		t.Errorf("the lag is %s, %s after the write", h.Lag, took)
	}
	r.Replication(t, p, true)
	await("the lag does not end", func(h record.Health) bool { return h.Lag == 0 })
}
