package integration_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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
			s.met(ctx, fence)
			s.complete(ctx, d, "v1", 1_000_000)
			s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v1") })
			forgotten(ctx, t, old)
			s.complete(ctx, d, "v1", 0)
			s.await(ctx, "the drop of what was set aside", func(d upgradestate.Deployment) bool { return len(d.Kept) == 0 })
			forgotten(ctx, t, old)
		})
	}
}

// met has an application that nobody told of the switch read and write the old name, until 'get'
// shows it with its name, driver and address.
func (s *system) met(ctx context.Context, fence record.FenceClass) {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uris["v1"]).SetAppName("old-shop"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	old := client.Database(s.db["v1"].Name()).Collection(packagesKind)
	busy, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		for busy.Err() == nil {
			if _, err := old.InsertOne(busy, bson.D{{Key: "word", Value: "hunter2"}}); err == nil {
				s.t.Error("a write under the old name is acknowledged")
			}
			_ = old.FindOne(busy, bson.D{}).Err()
		}
	})
	defer g.Wait()
	defer stop()
	want := `STILL USED +packages of v1, which the switch left: .*; seen: .*old-shop \(mongo-go-driver \S+\) at 127\.0\.0\.1`
	if fence == record.FenceView {
		want = strings.Replace(want, "left: .*;", `left: [1-9][\d,]* reads, [1-9][\d,]* refused writes, last .*;`, 1)
	}
	shown := regexp.MustCompile(want)
	api, _ := s.controllers[0].addresses()
	// Ask the API first: each call of the command starts a process.
	eventually(ctx, s.t, "the application is met", func() error {
		res, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return err
		}
		for _, u := range res.Msg.GetFormerNames().GetUses() {
			met := slices.ContainsFunc(u.GetUsers(), func(c *dbv1.NameUser) bool { return c.GetApplication() == "old-shop" })
			if met && (fence != record.FenceView || u.GetReads() > 0 && u.GetWrites() > 0) {
				return nil
			}
		}
		return fmt.Errorf("shown is %v", res.Msg.GetFormerNames())
	})
	r := execute(ctx, s.t, s.env, "get", "deployment", "--server", api)
	if r.code != 0 || !shown.MatchString(r.stdout) || strings.Contains(r.stdout, "hunter2") {
		s.t.Errorf("exit code %d, want %s in:\n%s%s", r.code, want, r.stdout, r.stderr)
	}
}

// complete retires a version that was left, as the record was before.
func (s *system) complete(ctx context.Context, d upgradestate.Deployment, version string, keepForMillis int64) {
	s.t.Helper()
	if err := s.completes(ctx, d, version, keepForMillis, ""); err != nil {
		s.t.Fatal(err)
	}
}

// completes begins the retirement of a version, with what follows the usual confirmation.
func (s *system) completes(ctx context.Context, d upgradestate.Deployment, version string, keepForMillis int64, suffix string) error {
	ns, _ := d.Namespace(version)
	_, err := s.apis()[0].Complete(ctx, connect.NewRequest(&dbv1.CompleteRequest{
		Version: version, IgnoreUsage: true, KeepForMs: &keepForMillis, Confirm: s.name + "/" + ns.Identity.Cluster + "/" + ns.Location + suffix,
	}))
	return err
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
