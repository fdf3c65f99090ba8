package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestForgottenApplication: an application that nobody told of a switch uses the old name
// after the version was completed. It gets errors, while the collections are set aside and
// when they are dropped, whatever stopped its writes before.
func TestForgottenApplication(t *testing.T) {
	t.Parallel()
	for _, fence := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		t.Run(string(fence), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := newSystem(ctx, t, settings{kinds: fmt.Sprintf("[{from: packages, to: packages, lens: packages.yaml, fence: %s}]", fence)})
			s.fill(ctx, newLedger("package"), 10)
			s.controller("controller", breakPoint{}).ready(ctx)
			s.begin(ctx)
			d := s.await(ctx, "the flip", flipped("v2"))
			old := s.db["v1"].Collection(packagesKind)
			if n, err := old.CountDocuments(ctx, bson.D{}); n != 10 || err != nil {
				t.Errorf("before it was completed it sees %d documents, %v", n, err)
			}
			s.complete(ctx, d, "v1", 1_000_000)
			s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v1") })
			forgotten(ctx, t, old)
			s.complete(ctx, d, "v1", 0)
			s.await(ctx, "the drop of what was set aside", func(d upgradestate.Deployment) bool { return len(d.Kept) == 0 })
			forgotten(ctx, t, old)
		})
	}
}

// complete retires a version that was left, as the record was before.
func (s *system) complete(ctx context.Context, d upgradestate.Deployment, version string, keepForMillis int64) {
	s.t.Helper()
	ns, _ := d.Namespace(version)
	_, err := s.apis()[0].Complete(ctx, connect.NewRequest(&dbv1.CompleteRequest{
		Version: version, IgnoreUsage: true, KeepForMs: &keepForMillis, Confirm: s.name + "/" + ns.Identity.Cluster + "/" + ns.Location,
	}))
	if err != nil {
		s.t.Fatal(err)
	}
}

// forgotten makes sure that a client that uses the name of a version that was completed is told so.
func forgotten(ctx context.Context, t *testing.T, c *mongo.Collection) {
	t.Helper()
	const conversionFailure, notOnView = 241, 166
	_, found := c.Find(ctx, bson.D{})
	_, counted := c.CountDocuments(ctx, bson.D{})
	_, inserted := c.InsertOne(ctx, bson.D{})
	_, updated := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: packageKey(0)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: -1}}}})
	_, deleted := c.DeleteOne(ctx, bson.D{})
	for _, call := range []struct {
		what string
		err  error
		code int
	}{
		{"find", found, conversionFailure}, {"count", counted, conversionFailure},
		{"insert", inserted, notOnView}, {"update", updated, notOnView}, {"delete", deleted, notOnView},
	} {
		var refusal mongo.ServerError
		if !errors.As(call.err, &refusal) || !refusal.HasErrorCode(call.code) {
			t.Errorf("%s: %v, want error %d", call.what, call.err, call.code)
		}
	}
	if found != nil && !strings.Contains(found.Error(), "version v1, which was completed") {
		t.Errorf("it does not say why: %v", found)
	}
}
