package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/appclient"
	"dbcontroller.dev/record"
)

const (
	// perDocument is well below what a fence waits for a lock, which an update gives up between documents.
	perDocument = 100 * time.Millisecond
	// manyEnough take longer than the test has: however late the fence comes, it meets the updates.
	manyEnough = int(patience/perDocument) + 200
)

// TestManyDocuments: a part of an update of many documents that a fence meets in the middle is
// written, and migrated. Neither client does it again, which would count twice, or says
// that nothing was written.
func TestManyDocuments(t *testing.T) {
	t.Parallel()
	for _, fence := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		t.Run(string(fence), func(t *testing.T) {
			t.Parallel()
			nodeClient(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := newSystem(ctx, t, settings{kinds: fmt.Sprintf("[{from: packages, to: packages, lens: packages.yaml, fence: %s}]", fence)})
			s.fill(ctx, newLedger("package"), manyEnough)
			controller := s.controller("controller", breakPoint{}).ready(ctx)
			api, _ := controller.addresses()
			m := manyDocuments{s: s, api: api, slowly: fmt.Sprintf("sleep(%d) || true", perDocument.Milliseconds())}
			goOutcome, nodeOutcome := m.inGo(ctx), m.inNode(ctx)
			eventually(ctx, t, "both updates are under way", func() error {
				for _, by := range []string{"go", "node"} {
					if n, err := s.updated(ctx, "v1", by); err != nil || n == 0 {
						return errors.Join(err, errTooFew)
					}
				}
				return nil
			})
			s.begin(ctx)
			s.await(ctx, "the flip", flipped("v2"))
			for by, ended := range map[string]chan manyOutcome{"go": goOutcome, "node": nodeOutcome} {
				if got, want := <-ended, (manyOutcome{"UnknownOutcomeError", 1}); got != want {
					t.Errorf("%s: %+v, want %+v", by, got, want)
				}
				n, err := s.updated(ctx, "v2", by)
				if err != nil || n == 0 || n >= int64(manyEnough) {
					t.Errorf("%s has updated %d of %d once, want a part: %v", by, n, manyEnough, err)
				}
				if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.M{by: bson.M{"$gt": 1}}); err != nil || n > 0 {
					t.Errorf("%s has updated %d twice: %v", by, n, err)
				}
			}
		})
	}
}

// updated is how many documents of a version one of the updates has written once.
func (s *system) updated(ctx context.Context, version, by string) (int64, error) {
	return s.db[version].Collection(packagesKind).CountDocuments(ctx, bson.M{by: 1})
}

// manyOutcome is what became of an update of many documents, and how often it was tried.
type manyOutcome struct {
	Outcome string `json:"outcome"`
	Runs    int    `json:"runs"`
}

type manyDocuments struct {
	s      *system
	api    string
	slowly string // a condition in JavaScript that takes its time for each document
}

func (m manyDocuments) inGo(ctx context.Context) chan manyOutcome {
	t := m.s.t
	t.Helper()
	app, err := appclient.Open(ctx, appclient.Config{Controllers: []string{m.api}, Application: "many", Mongo: m.s.db["v1"].Client()})
	if err != nil {
		t.Fatal(err)
	}
	ended, over := make(chan manyOutcome, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() { cancel(); <-over })
	go func() {
		defer close(over)
		became := manyOutcome{Outcome: "done"}
		err := app.Write(ctx, func(ctx context.Context, at appclient.Place) error {
			became.Runs++
			c, err := at.Collection(packagesKind)
			if err == nil {
				_, err = c.UpdateMany(ctx, bson.M{"$where": m.slowly}, bson.M{"$inc": bson.M{"go": 1}})
			}
			return err
		})
		switch {
		case errors.Is(err, appclient.ErrUnknownOutcome):
			became.Outcome = "UnknownOutcomeError"
		case err != nil:
			became.Outcome = err.Error()
		}
		if err := app.Close(ctx); err != nil {
			t.Error(err)
		}
		t.Logf("in Go: %v", err)
		ended <- became
	}()
	return ended
}

func (m manyDocuments) inNode(ctx context.Context) chan manyOutcome {
	t := m.s.t
	t.Helper()
	part, err := json.Marshal(map[string]any{
		"controllers": []string{m.api}, "uri": m.s.uris["v1"], "name": "many-node", "slowly": m.slowly, "kind": packagesKind,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, over := make(chan manyOutcome, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() { cancel(); <-over })
	cmd := exec.CommandContext(ctx, "node", "../clients/node/scenario/many.js")
	cmd.Env = append(os.Environ(), applicationVariable+"="+string(part))
	cmd.Stderr = os.Stderr
	go func() {
		defer close(over)
		var became manyOutcome
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &became)
		}
		if err != nil {
			t.Errorf("in JavaScript: %v", err)
		}
		ended <- became
	}()
	return ended
}
