package secrets_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// TestJanitor deletes what expired long enough ago, in both versions, and nothing that was
// renewed while it looked.
func TestJanitor(t *testing.T) {
	t.Parallel()
	for version, v := range map[string]struct {
		janitor func(vrunner.Store, time.Duration) vrunner.Controller
		name    func(string) string
		field   string
		value   func(time.Time) any
	}{
		"v1": {secrets.JanitorV1, func(id string) string { return "projects/p/secrets/" + id }, "expires_at", func(at time.Time) any { return at.Unix() }},
		"v2": {secrets.JanitorV2, v2Name, "expire_time", func(at time.Time) any { return at }},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := sampletest.New(t, secrets.Kind)
				put := func(id string, at time.Time) {
					doc := bson.D{{Key: "_id", Value: v.name(id)}, {Key: "revision", Value: int64(1)}}
					if !at.IsZero() {
						doc = append(doc, bson.E{Key: v.field, Value: v.value(at)})
					}
					s.Put(t, secrets.Kind, doc)
				}
				put("gone", time.Now().Add(-2*time.Hour))
				put("kept", time.Now().Add(-30*time.Minute))
				put("never", time.Time{})
				put("renewed", time.Now().Add(-2*time.Hour))
				put("valid", time.Now().Add(24*time.Hour))
				s.BeforeWrite(func(ms []record.Mutation) error {
					if ms[0].Key == record.StringKey(v.name("renewed")) {
						put("renewed", time.Now().Add(24*time.Hour))
					}
					return nil
				})
				ended := make(chan error, 1)
				go func() { ended <- v.janitor(s, time.Hour).Run(ctx) }()
				want := func(ids ...string) {
					t.Helper()
					synctest.Wait()
					have := s.All(t, secrets.Kind)
					for i, id := range ids {
						if len(have) != len(ids) || have[i].Key != record.StringKey(v.name(id)) {
							t.Fatalf("%d secrets are left: %v, want %v", len(have), have, ids)
						}
					}
				}
				want("kept", "never", "renewed", "valid")
				<-time.After(31*time.Minute + time.Second)
				want("never", "renewed", "valid")
				cancel()
				if err := <-ended; err != context.Canceled {
					t.Error(err)
				}
			})
		})
	}
}
